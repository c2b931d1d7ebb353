"""Where the value after a telling name begins and ends, in the notations of shells, programs, settings and logs.

Rather more is taken for the value than less. What is looked at is either a part of the value or bounded.
"""

import re

GAP = r"(?:\s|\x1b\[[\d;]{0,12}m|\\(?:x1b|033|u001b|e)\[[\d;]{0,12}m|\\[nrt]|\x00|\\x00|\\(?=\n))"
"""What can stand between a name and its value: white space, also escaped, and colours of a terminal."""
QUOTE = r"(?:\\{0,8}[\"'`]|&(?:quot|apos|\#3[49]|\#x2[27]);|%2[27])"
_OPENING = re.compile(rf"(?:[bBrRuUfF]{{1,2}}(?=[\"']))?(\"\"\"|'''|{QUOTE})")
_BARE = re.compile(
    r"""(?:"[^"\n]{0,1000}"|'[^'\n]{0,1000}'|\\.|[^\s"'`<>&,;)\]}\\]|[,;)\]}](?![\s,;)\]}&"'`\\<]|$))+""", re.MULTILINE
)
_GOES_ON = re.compile(r"[\w\"'$+/=.-]")
_BLOCK = re.compile(r"[|>][+-]?\d?[ \t]*(?:\n(?:[ \t]+[^\n]*(?:\n|\Z))+|\\n[ \t]+[^\n]*)")
"""A text of several lines in YAML."""
_SCHEME = re.compile(r"(?i)(?:basic|bearer|token|digest|apikey|negotiate|ntlm)\Z")
_HAS_QUOTES = re.compile(r"(?i)(?:digest|oauth)\b")
"""Schemes whose fields are quoted, perhaps in the quotes of the header."""
_WORD = re.compile(r"[ \t]{1,8}[^\s\"']+")
_TYPED = re.compile(rf"{GAP}{{0,4}}=(?!=){GAP}{{0,4}}")
"""Between the type of a variable and its value."""
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_LONGEST_QUOTED = 10_000

Span = tuple[int, int]


def value_at(text: str, begin: int) -> Span:
    """The place of the value that begins here: quoted, in brackets, a block, or a word. It is empty if nothing does."""
    if opening := _OPENING.match(text, begin):
        end = _closed(text, opening.end(), opening[1])
        after = _closing_length(text, end, opening[1])
        if after and _GOES_ON.match(text, end + after):  # as a shell joins them
            return begin, _word_end(text, end + after)
        return opening.end(), end
    if block := _BLOCK.match(text, begin):
        return begin, block.end() - text.endswith("\n", begin, block.end())
    if text[begin : begin + 1] in _CLOSING:
        return begin, _after_next(text, _CLOSING[text[begin]], begin)
    end = _word_end(text, begin)
    if typed := _TYPED.match(text, end):
        end = max(end, value_at(text, typed.end())[1]) if begin < end < typed.end() < len(text) else end
    return begin, end


def header_at(text: str, name: int, begin: int) -> Span:
    """The place of the value of an HTTP header whose name begins at `name`: to the end of its quotes, or of the line."""
    if _OPENING.match(text, begin):
        return value_at(text, begin)
    quote = text[name - 1 : name]
    if quote and quote in "\"'`" and not _HAS_QUOTES.match(text, begin):
        return begin, _closed(text, begin, quote)
    return begin, _line_end(text, begin)


def _word_end(text: str, begin: int) -> int:
    found = _BARE.match(text, begin)
    if not found:
        return begin
    end = found.end()
    for opened, closed in _CLOSING.items():  # a call, a type
        if text.count(opened, begin, end) > text.count(closed, begin, end):
            return _after_next(text, closed, end)
    if _SCHEME.search(text, max(begin, end - 12), end) and (word := _WORD.match(text, end)):
        end = word.end()
    return end


def _after_next(text: str, closed: str, begin: int) -> int:
    """Behind the bracket that closes what is open here; at the end of the line if there is none."""
    end = _line_end(text, begin)
    is_below = text[begin + 1 : end].isspace() or begin + 1 == end  # what is in brackets begins on the next line
    found = text.find(closed, begin, begin + _LONGEST_QUOTED if is_below else end)
    return found + 1 if found >= 0 else end


def _closed(text: str, begin: int, quote: str) -> int:
    """Where the quotes that are open here end; if they don't, the end of the line."""
    found = re.compile(rf"(?<!\\){re.escape(quote)}").search(text, begin, begin + _LONGEST_QUOTED)
    return found.start() if found else _line_end(text, begin)


def _closing_length(text: str, end: int, quote: str) -> int:
    return len(quote) if text.startswith(quote, end) else 0


def _line_end(text: str, begin: int) -> int:
    end = text.find("\n", begin)
    return len(text) if end < 0 else end
