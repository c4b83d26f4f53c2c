"""Judges what it reads: a pickled (section, folder, pairs) in, a pickled list of verdicts out.

Started by launch/audit.py, which alone writes its input: `python -m groupwise.launch.second_process`.
"""

from __future__ import annotations

import pickle
import sys

from groupwise.launch.verifiers import verifier_of
from groupwise.verifiers.judging import judge_pairs


def main() -> None:
    """One exchange over the standard streams. What a verifier prints goes to stderr."""
    section, folder, pairs = pickle.load(sys.stdin.buffer)
    answer = sys.stdout.buffer
    sys.stdout = sys.stderr
    verifier = verifier_of(section, folder)
    try:
        pickle.dump(list(judge_pairs(verifier, pairs)), answer)
    finally:
        verifier.close()


if __name__ == "__main__":
    main()
