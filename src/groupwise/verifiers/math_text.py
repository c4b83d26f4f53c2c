"""Takes off what does not belong to the value of a mathematical text: delimiters, spacing, currency, units."""

from __future__ import annotations

import re

CURRENCY = "$€£¥₹"
_UNIT_WORDS = """
dollar:dollars usd:dollars euro:euros eur:euros pound:pounds gbp:pounds cent:cents
second:seconds sec:seconds s:seconds minute:minutes min:minutes hour:hours hr:hours hrs:hours h:hours day:days
week:weeks month:months year:years
mm:mm cm:cm m:m km:km meter:m metre:m kilometer:km kilometre:km centimeter:cm inch:inches in:inches foot:feet ft:feet
mile:miles yard:yards
g:g kg:kg mg:mg gram:g kilogram:kg lb:lb lbs:lb ounce:ounces oz:ounces
ml:ml l:l liter:l litre:l gallon:gallons degree:degrees unit:units square:square mph:mph percent:percent
"""
UNITS = dict(pair.split(":", 1) for pair in _UNIT_WORDS.split())
UNITS |= {unit: unit for unit in UNITS.values()} | {f"{name}s": unit for name, unit in UNITS.items() if len(name) > 2}

_CHARACTERS = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full-width forms of ASCII
    **{ord(space): " " for space in "\u00a0\u2002\u2003\u2007\u2009\u200a\u202f\u3000\t\n\r\f\v"},
    **dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad"), ""),
    **{ord(minus): "-" for minus in "\u2212\u2010\u2011\u2013\u2014\ufe63"},
    **{
        ord(char): f"^{{{index}}}"
        for index, char in enumerate("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
    },
    ord("\u2044"): "/",
    ord("\u00d7"): "\\times ",
    ord("\u00b7"): "\\cdot ",
    ord("\u22c5"): "\\cdot ",
    ord("\u03c0"): "\\pi ",
    ord("\u221e"): "\\infty",
    ord("\u00b1"): "\\pm ",
    ord("\u222a"): "\\cup ",
    ord("\u2264"): "\\le ",
    ord("\u2265"): "\\ge ",
    ord("\u00b0"): "^\\circ ",
}
_SPACING = re.compile(
    r"(\\\\)|\\(?:[!,;: >]|q?quad(?![A-Za-z])|left(?![A-Za-z])|right(?![A-Za-z])|displaystyle(?![A-Za-z]))|~"
)
_FRAC = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_WRAPPER = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|mathit|operatorname|mbox|emph)\{([^{}]*)\}")
_AND = re.compile(r",? *(?:\\text\{ *(?:and|or) *\}|\b(?:and|or)\b) *")
_DEGREES = re.compile(r" *\^ *(?:\\circ|\{ *\\circ *\}) *$")
_TRAILING_UNIT = re.compile(r"(?<=[\d}.)%]) *([A-Za-z]{1,12})(?: (?:of )?[a-z]{1,12})?(?:\^\{?[23]\}?)?$")
_PAIRS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("__", "__"), ("`", "`"), ('"', '"'))


def clean(text: str) -> tuple[str, str]:
    """The text of a value and its unit, "" if none: clean(r"\\$1,800.") is ("1,800", "dollars")."""
    text = text.translate(_CHARACTERS).strip()
    text = _strip_pairs(text)
    text = text.replace("{,}", ",").replace("\\%", "%").replace("\\$", "$")
    text = _FRAC.sub(r"\\frac", text)
    text = re.sub(r"(?<=\d)\\[!,] ?(?=\d{3}(?!\d))|(?<=\d),\\! ?(?=\d{3})", _thousands, text)
    text = _SPACING.sub(lambda match: match[1] or " ", text).strip()  # a row break of a matrix stays
    text = _strip_pairs(text)
    text, unit = _currency(text)
    degrees = _DEGREES.search(text)
    if degrees:
        text, unit = text[: degrees.start()], "degrees"
    text, trailing = _unit(text)
    unit = trailing or unit
    if unit == "percent":
        text, unit = f"{text}%", ""
    text = _AND.sub(", ", text)
    return text.strip(), unit


def _thousands(match: re.Match[str]) -> str:
    return "," if "," in match[0] else ""


def _strip_pairs(text: str) -> str:
    """Takes off pairs of delimiters around the whole, and a full stop behind it."""
    for _ in range(8):
        before = text
        text = text.strip()
        if text.endswith((".", ";", ",")) and not text.endswith(("...", "\\;", "\\,")):
            text = text[:-1].rstrip()
        for opening, closing in _PAIRS:
            inside = text[len(opening) : -len(closing)]
            if (
                len(text) > len(opening) + len(closing)
                and text.startswith(opening)
                and text.endswith(closing)
                and opening not in inside
            ):
                text = inside.strip()
                break
        whole = _WRAPPER.fullmatch(text)
        if whole and any(char.isdigit() for char in whole[1]):
            text = whole[1].strip()
        if text == before:
            break
    return text


def _currency(text: str) -> tuple[str, str]:
    sign, rest = "", text
    if rest[:1] in ("-", "+") and rest[1:].lstrip()[:1] and rest[1:].lstrip()[0] in CURRENCY:
        sign, rest = rest[0], rest[1:].lstrip()
    if rest[:1] and rest[0] in CURRENCY:
        name = {"$": "dollars", "€": "euros", "£": "pounds"}.get(rest[0], rest[0])
        return sign + rest[1:].lstrip(), name
    if rest[-1:] and rest[-1] in CURRENCY and rest[:-1].rstrip()[-1:].isdigit():
        name = {"$": "dollars", "€": "euros", "£": "pounds"}.get(rest[-1], rest[-1])
        return rest[:-1].rstrip(), name
    return text, ""


def _unit(text: str) -> tuple[str, str]:
    """A unit of the list behind a number, as plain words or in \\text{}; other words are left where they are."""
    spaced = _WRAPPER.sub(lambda match: " " + match[1].strip(), text).strip() if "\\" in text else text
    match = _TRAILING_UNIT.search(spaced)
    if match is None:
        return text, ""
    unit = UNITS.get(match[1].lower() if len(match[1]) > 1 else match[1])
    if unit is None or (len(match[1]) == 1 and " " not in match[0]):
        return text, ""
    return spaced[: match.start()].rstrip(), unit if match[0].strip() == match[1] else match[0].strip()


def unwrap_text(text: str) -> str:
    r"""Text without one \text{}, \mathrm{} and the like around the whole of it; and A for (A)."""
    whole = _WRAPPER.fullmatch(text)
    inside = whole[1].strip() if whole else text
    return inside[1:-1] if len(inside) == 3 and inside[0] == "(" and inside[2] == ")" else inside


def split_top(text: str, separator: str, *, unbalanced_is_one: bool = True) -> list[str]:
    r"""Parts between separators that are in no brackets. A comma between digits as in 1,800 separates as well, unless
    the whole is one number, which the caller has tried before. Brackets that do not match give one part, or none.
    """
    parts: list[str] = []
    depth, start, place = 0, 0, 0
    while place < len(text):
        char = text[place]
        if depth == 0 and text.startswith(separator, place):
            parts.append(text[start:place])
            place += len(separator)
            start = place
            continue
        if char == "\\":
            char = text[place + 1 : place + 2]
            place += 1
            if char not in "{}":
                place += 1
                continue
        depth += (char in "([{") - (char in ")]}")
        if depth < 0:
            return [text] if unbalanced_is_one else []
        place += 1
    if depth != 0:
        return [text] if unbalanced_is_one else []
    return [*parts, text[start:]]
