"""What is watched while training: lengths of right and wrong answers, and rewards that are found and not earned. Pure
functions; launch/watch_lengths.py and launch/watch_hacking.py call them.
"""
