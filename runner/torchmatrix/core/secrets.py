"""Credentials, found by their form or by the name before them: nothing that is shown may contain them.

Every pattern takes time in proportion to the length of a text: it begins at a character of its own, what it looks back at or
tries again is bounded, and a match isn't scanned again.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from torchmatrix.core.credentials import KEY, SHAPES

# Where the value after a telling name begins and ends, in the notations of shells, programs, settings and logs.
#
# In doubt more counts as the value. What is scanned is either a part of the value or bounded.

GAP = r"(?:\s|\x1b\[[\d;]{0,12}m|\\(?:x1b|033|u001b|e)\[[\d;]{0,12}m|\\[nrt]|\x00|\\x00|\\(?=\n))"
"""Fillers between a name and its value: white space, also escaped, and colours of a terminal."""
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
    """Return the place of the value that begins here: quoted, in brackets, a block, or a word. It is empty if nothing does."""
    if opening := _OPENING.match(text, begin):
        end = _closed(text, opening.end(), opening[1])
        after = len(opening[1]) if text.startswith(opening[1], end) else 0
        if after and _GOES_ON.match(text, end + after):  # a shell joins them
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
    """Return the place of the value of an HTTP header whose name begins at `name`: to the end of its quotes, or of the line."""
    if _OPENING.match(text, begin):
        return value_at(text, begin)
    quote = text[name - 1 : name]
    if quote and quote in "\"'`" and not _HAS_QUOTES.match(text, begin):
        return begin, _closed(text, begin, quote)
    return begin, _line_end(text, begin)


def _word_end(text: str, begin: int) -> int:
    word = _BARE.match(text, begin)
    if not word:
        return begin
    end = word.end()
    for opened, closed in _CLOSING.items():  # a call, a type
        if text.count(opened, begin, end) > text.count(closed, begin, end):
            return _after_next(text, closed, end)
    if _SCHEME.search(text, max(begin, end - 12), end) and (following := _WORD.match(text, end)):
        end = following.end()
    return end


def _after_next(text: str, closed: str, begin: int) -> int:
    """Return the place behind the bracket that closes what is open here; the end of the line if there is none."""
    end = _line_end(text, begin)
    is_below = text[begin + 1 : end].isspace() or begin + 1 == end  # what is in brackets begins on the next line
    place = text.find(closed, begin, begin + _LONGEST_QUOTED if is_below else end)
    return place + 1 if place >= 0 else end


def _closed(text: str, begin: int, quote: str) -> int:
    """Return where the quotes that are open here end; if they don't, the end of the line."""
    closing = re.compile(rf"(?<!\\){re.escape(quote)}").search(text, begin, begin + _LONGEST_QUOTED)
    return closing.start() if closing else _line_end(text, begin)


def _line_end(text: str, begin: int) -> int:
    end = text.find("\n", begin)
    return len(text) if end < 0 else end


GONE = "…"
"""Replaces what was removed."""
MOST_CHARACTERS = 1_000_000
"""Longer texts are cut."""
_CUT_BEFORE = 2_000
"""Characters before such a cut that are removed too: they may be the beginning of a credential."""
_VARIABLES = re.compile(
    r"TOKEN(?!IZ|S(?:_|$))|SECRET|PASSW|PASSPHRASE|PASSCODE|CREDENTIAL|KEY|AUTHORIZATION|COOKIE|(?:^|_)(?:PASS|AUTH|CREDS|PW|PAT)$|(?<!BY)(?<!COM)PASS$|_PWD$|(?:SSH|BIND|ROOT)P(?:ASS|W)$"
)
_NOUNS = (
    "passwords?|passwd|passphrase|passcode|passwort|kennwort|contrase[nñ]a|wachtwoord|senha|pwd|storepass|keypass|secrets?|credentials?|creds|authorization|cookies?|"
    "auth_?token|(?:api|app|access|private|secret|sign(?:ing)?|account|encryption|(?:pre_?)?shared|master|ssh|auth|deploy|service|"
    "subscription|license|storage|session|webhook|ngc|wandb|client|fernet|hmac)_?key|(?:oauth|amz|goog)_signature|bearer|(?:j|php)?sess(?:ion)?_?id|(?:^|_)(?:pass|auth|jwt|csrf|xsrf|pat|pw|psk|t?otp)|"
    "private_key_id|docker_?config_?json|access_signature|(?:^|_)sig$|(?:db|user|smtp|mysql|mariadb|pg|redis|admin|root|ftp|mail|proxy|mongo|sudo|login|registry|docker)pass|(?:root|bind)pw"
)
_FIELDS = re.compile(
    rf"(?:{_NOUNS})(?:$|_?\d+$|_(?!file|path|name|count|type|kind|length|len|size|id$))"
    r"|token_?(?:\d*$|(?:value|string|str|text|data|raw|plain|hash|b64|base64|secret|key|header|auth)s?(?:$|_))"
)
_NO_SECRET = re.compile(
    r"(?:^|_)(?:pad|eos|bos|unk|sep|cls|mask|special|next|image|start|stop|end|prefix|suffix|first|last|per|each|a)_token$"
    r"|(?:for|back)ward_pass$"
)
"""Tokens that a model reads, and the passes of a model."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LEFT_OVER = re.compile(r"^[a-z0-9]{1,5}(?=[A-Z])")
"""The rest of an escaped character before a variable: \\nNAME, %0ANAME."""


@lru_cache(4096)
def is_secret_name(name: str) -> bool:
    """Check whether a field or variable of this name holds a credential. For variables (in capitals) a part is enough."""
    capitals = _LEFT_OVER.sub("", name)
    if capitals.replace("-", "_").isupper() and _VARIABLES.search(capitals.replace("-", "_")):
        return True
    plain = _CAMEL.sub("_", name).lower().replace("-", "_").replace(".", "_").strip("_")
    return bool(_FIELDS.search(plain)) and not _NO_SECRET.search(plain)


def without_secrets(text: str) -> str:
    """Replace every credential that its form or its name reveals by "…". A text beyond MOST_CHARACTERS is cut, and says so."""
    if len(text) > MOST_CHARACTERS:
        cut = len(text) - MOST_CHARACTERS + _CUT_BEFORE
        return f"{_scanned(text[:MOST_CHARACTERS])[:-_CUT_BEFORE]}… ({cut} letters were cut)"
    return _CONTINUED.sub(rf"\1{GONE}", _scanned(text))


@lru_cache(16384)
def _kept(text: str) -> str:
    return without_secrets(text)


def cleaned(text: str) -> str:
    """Return a text from the facts as a page or a table shows it, without credentials; a short one holds none."""
    return _kept(text) if len(text) > 12 else text


def cleaned_value(value: Any) -> Any:
    """Return a JSON value, or a tuple of such, whose texts hold no credentials."""
    if isinstance(value, str):
        return cleaned(value)
    if isinstance(value, (list, tuple)):
        members = map(cleaned_value, value)
        return tuple(members) if isinstance(value, tuple) else list(members)
    if isinstance(value, Mapping):
        return {name: cleaned_value(member) for name, member in value.items()}
    return value


def each_without_secrets(members: Sequence[str]) -> list[str]:
    """Redact the texts of a list, such as the words of a command, where one may announce a credential in the next."""
    plain = [member.replace("\n", " ") for member in members]
    shown = without_secrets("\n".join(plain)).split("\n")
    if len(shown) != len(plain):  # one credential in several texts
        return [GONE] * len(plain)
    return [member if old == new else new for member, old, new in zip(members, plain, shown, strict=True)]


def _scanned(text: str) -> str:
    text = _CUT.sub(_cut_token, text) if "\n" in text else text
    for pattern, replacement in _FORMS:
        text = pattern.sub(replacement, text)
    for spans_in in (_named_values, _command_values):
        text = _without(text, spans_in(text))
    return text


def _cut_token(match: re.Match[str]) -> str:
    """Redact both halves of a token that a line break cuts."""
    begin, end = match["begin"], match["end"]
    spans = (found.span() for found in _SHAPED.finditer(begin + end))
    is_cut = _DIGITS_40.fullmatch(begin + end) or any(at < len(begin) < to for at, to in spans)
    return f"{GONE}{match['break']}{GONE}" if is_cut else match[0]


def _commit(match: re.Match[str]) -> str:
    """Redact 40 hexadecimal digits, as of W&B's keys, unless the word before them says that they are a commit."""
    return match[0] if _COMMIT.search(match.string, max(0, match.start() - 30), match.start()) else GONE


def _without(text: str, spans: Iterator[Span]) -> str:
    """Replace each of these parts, in the order of their begins, by "…"; parts that overlap are one."""
    shown, at = [], 0
    for begin, end in spans:
        if at <= begin < end:
            shown += [text[at:begin], GONE]
        at = max(at, end if begin < end else at)
    return "".join([*shown, text[at:]])


def _parameter(match: re.Match[str]) -> str:
    """Redact a parameter of an address if its name is telling, or if it is long and has digits."""
    name, value = match[2], match[3]
    is_long = len(value) >= 24 and re.fullmatch(r"[\w%.+/=~-]+", value) and any(map(str.isdigit, value))
    is_telling = is_secret_name(name) or _PARAMETER.search(name)
    return f"{match[1]}{name}={GONE}" if value and (is_telling or is_long) else match[0]


def _element(match: re.Match[str]) -> str:
    """Redact an XML element whose tag or attribute `name` is telling."""
    names = [match["tag"], *_ATTRIBUTE.findall(match["attributes"])]
    return f"{match['begin']}{GONE}" if any(map(is_secret_name, names)) else match[0]


def _property(match: re.Match[str]) -> str:
    return f"{match[1]}{GONE}" if is_secret_name(match[2]) else match[0]


def _basic(match: re.Match[str]) -> str:
    """Redact HTTP's basic credentials: user:password in base 64."""
    try:
        is_pair = b":" in base64.b64decode(match[2] + "=" * (-len(match[2]) % 4), validate=True)
    except ValueError:
        is_pair = False
    return match[1] + GONE if is_pair or (len(match[2]) >= 24 and any(map(str.isdigit, match[2]))) else match[0]


_PARAMETER = re.compile(r"(?i)(?:key|sig|signature|auth|code|session|token|secret|sid)(?:$|[_.-])|(?:token|secret|passw)")
_ATTRIBUTE = re.compile(r"""\bname=["']([\w.-]+)["']""")
_PASSWORD = r""":(?!\d{1,5}(?:[/?#]|$))[^\s"'<>@]{1,200}"""
"""The password of an address whose user has a slash: one without a dot is no host, and a host follows the password."""
_SHAPED = re.compile("|".join(SHAPES))
_HOST = r"(?!sha\d)[A-Za-z0-9][\w-]{0,62}(?:[:/]|\.\w)"
"""The begin of a host with a domain, a port or a path: a name alone may be anything, as in net.py:Net@0123."""
_DIGITS_40 = re.compile(r"(?<![\w@/:.+-])[0-9a-f]{40}(?![\w-])")
_REST = r"(?P<end>(?=[A-Za-z]{0,80}[0-9]|[0-9]{1,80}[A-Za-z]|[A-Za-z]{20})[A-Za-z0-9+/_-]{4,300}={0,2})(?![\w+/=:.(\[-])"
"""What may be the second half of a token, at the begin of a line."""
_CUT = re.compile(rf"(?<![\w.+/-])(?P<begin>[\w.+/-]{{1,300}})(?P<break>\r?\n[ \t]{{0,40}}){_REST}")
_CONTINUED = re.compile(rf"({GONE}\r?\n[ \t]{{0,40}}){_REST}")
"""A credential that ends with its line goes on in the next line, if that begins with letters and digits at random."""
_COMMIT = re.compile(r"(?i)(?:commit|revision|rev|git|sha1?|hash|ref|tree|version|head|at)[\"']?[\s:=@/(]{1,4}[\"']?\Z")
_IN_PATH = re.compile(
    r"(?i)((?:anaconda\.(?:org|com)/t/)|(?:\bdl\.cloudsmith\.io/)(?!public/|basic/)|(?:\bfury\.io/)(?=[\w-]{16}))[\w-]{8,200}(?=/)"
)
"""Tokens that private package indexes take as a part of the path: Anaconda's, Cloudsmith's and Gemfury's."""
_FORMS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(rf"{KEY}.*?(?:-----END [A-Z0-9 ]{{0,40}}PRIVATE KEY(?: BLOCK)?-----|\Z)", re.DOTALL), GONE),
    (re.compile(r"""(?i)([a-z\d]:(?:\\*/){2})[^\s/"'<>]*@"""), r"\1"),
    (re.compile(r"""(?i)([a-z\d]:(?:\\*/){2})[^\s/"'<>@:]{0,200}:(?!\d{1,5}(?:[/?#]|$))[^\s"'<>@]{1,200}@"""), r"\1"),
    (re.compile(rf"""(?i)([a-z\d]:(?:\\*/){{2}})[^\s/.:@"'<>]{{1,80}}/[^\s:@"'<>]{{0,80}}{_PASSWORD}@(?!sha\d)"""), r"\1"),
    (re.compile(rf"""(?i)([a-z\d]:(?:\\*/){{2}})[^\s:@"'<>]{{1,160}}{_PASSWORD}@(?=(?:[\w-]{{1,63}}\.){{1,8}}[a-z])"""), r"\1"),
    (re.compile(r"""(?i)([a-z\d]%3A%2F%2F)(?:(?!%2F|%40)[^\s"'<>&]){1,300}%40"""), r"\1"),
    (re.compile(r"""([?&;])([\w.-]{1,80})=([^&\s"'#<>]*)"""), _parameter),
    (re.compile(r"(?P<begin><(?P<tag>[\w.:-]{1,80})(?P<attributes>\s[^<>]{1,300})>)[^<]{1,5000}(?=</)"), _element),
    (re.compile(r"(<name>([\w.-]{1,100})</name>\s{0,80}<value>)[^<]{1,5000}(?=</)"), _property),
    (re.compile(rf"(?<![\w.+/:@-])[\w.+-]{{1,80}}:(?!//)[^\s\"'<>@:/,;()\[\]{{}}]{{1,200}}@(?={_HOST})"), f"{GONE}@"),
    (_SHAPED, GONE),
    (_IN_PATH, rf"\1{GONE}"),
    (_DIGITS_40, _commit),
    (re.compile(rf"(?i)(?<![a-z])(bearer{GAP}{{1,4}})[\w.~+/=-]{{16,}}"), rf"\1{GONE}"),
    (re.compile(r"(?i)(?<![a-z])(basic\s{1,4})([A-Za-z0-9+/]{6,2000}={0,2})"), _basic),
)
"""Credentials that are recognized by their form."""

_TELLING = re.compile(
    r"(?i)pass|pwd|secret|token|key|cred|auth|cookie|jwt|bearer|sess|[cx]srf|sig(?:nature)?(?:\Z|[_.-])|dockerconfig|psk|otp|kennwort|contrase|wachtwoord|senha"
    r"|p(?:w|at)\Z"
)
_NAME = re.compile(r"[\w.-]+")
_LONGEST_NAME = 100
_HEADER = re.compile(r"(?i)(?:authorization|cookie2?)$")
_KIND_OF_KEY = re.compile(
    r"(?i)(?:api|access|secret|private|auth|account|licen[cs]e|encryption|signing|ssh|product|shared)[ _-]\Z"
)
_DECLARES = re.compile(r"\b(?:ENV|ARG|setenv|SetEnv|setx?|set -\w{1,3})[ \t]{1,8}\Z")
_SEPARATOR = re.compile(
    rf"(?P<close>(?:{QUOTE}|[\])]){{0,4}})(?P<gap>{GAP}{{0,12}})"
    rf"(?P<sign>=>|->|<-|!?[:=：＝]{{1,3}}|%3[AaDd]|\\u003[AaDd]|,|>)?{GAP}{{0,20}}(?:-[ \t]+)?"
    r"(?:[!&][\w!:/.-]{1,80}[ \t]+){0,2}"
)
_NAMED_VALUE = re.compile(rf"(?i){QUOTE}?{GAP}{{0,4}},?{GAP}{{0,20}}{QUOTE}?value{QUOTE}?{GAP}{{0,4}}[:=]{GAP}{{0,8}}")
"""The notation of Kubernetes and others for variables: name and value in separate fields."""
_IN_BRACKETS, _NO_FIELD = re.compile(rf"[(]\s{{0,4}}{QUOTE}\Z"), re.compile(rf"(?<![:=\s])\s{{0,4}}{QUOTE}\Z|\A{QUOTE}\Z")
_QUOTED = re.compile(rf"[bBrRuUfF]{{0,2}}{QUOTE}")
_RANDOM = r"(?=[^\d\s]{0,80}\d)(?=[^A-Za-z\s]{0,80}[A-Za-z])[\w+/=-]{14,}"
_AT_RANDOM = re.compile(_RANDOM)
_LIKELY = re.compile(r"(?=[^\d\s]{0,80}\d)(?=[^A-Za-z\s]{0,80}[A-Za-z])[^\s\"'`]{6,}")
_NO_VALUE = re.compile(r"(?i)(?:none|null|nil|true|false|undefined|not(?: set)?)\Z|[/~.]\S*\Z|[^\w\s…]{1,3}\Z")
_COUNTED, _NUMBER = re.compile(r"(?i)(?:token|pass)(?:_[a-z]+)?\Z"), re.compile(r"\d{1,5}\Z|\d{1,9}\.\d{1,9}\Z")
"""Tokens that a model reads and its passes are counted, so they have numbers."""
_NESTED = re.compile(r":[ \t]*\r?\n((?P<depth>[ \t]+)(?:- )?[\w.-]+:\s[^\n]*(?:\n(?P=depth)[^\n]*)*)")
"""Fields below a telling name, in YAML."""
_S = r"(?:[\s,\"'\[\]\x00]|\\x00|\\[nrt]?){1,8}"
_W = r"[^\s,\"'\\\[\]\x00]{1,200}"
_MIXED = r"(?=[^\d\s]{0,80}\d)(?=[^A-Za-z\s]{0,80}[A-Za-z])[^\s\"'`]{8,}"
_PROSE = (
    r"(?:\b[A-Z][A-Z0-9_]{0,60}(?:_(?:KEY|TOKEN|PWD|PASS)|SECRET|PASSWO?R?D)|\bSECRET|(?i:\bapi_?key|\bsecrets?|\bpass(?:word|phrase|code)s?"
    r"|\b(?:api|access|secret|private|auth|account|encryption|signing|refresh|bearer)[ _-](?:key|token)s?))"
)
"""Names of credentials in sentences."""
_ORDINARY = (
    r"(?!(?:not|too|wrong|required|incorrect|invalid|expired|missing|empty|needed|set|unset|no|a|an|the|only|correct|always|never|"
    r"ok|okay|accepted|rejected|prompt|manager|authentication|protected|changed|reset|updated|stored|saved|read|sent|taken)\b)"
)
"""Words that follow "password" in sentences and are no password."""
_VARIABLE = r"[A-Z][A-Z0-9_]{0,60}_(?:KEY|TOKEN|SECRET|PASSWORD)"
_COMMANDS = (
    rf"\bsshpass{_S}(?:-(?!p)\w+{_S}){{0,3}}-p(?:{_S})?",
    rf"\b(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|crane|regctl|cosign|az|apptainer|singularity){_S}(?:{_W}{_S}){{0,4}}?"
    rf"login{_S}(?:{_W}{_S}){{0,8}}?-p(?:{_S}|=)?",
    rf"\b(?:mysql|mariadb)\w{{0,12}}{_S}(?:{_W}{_S}){{0,8}}?-p(?![\s-]|ort|lugin|rotocol|rint|ager|ipe)",
    rf"\bredis-cli{_S}(?:{_W}{_S}){{0,8}}?-a{_S}",
    rf"\bldap\w{{3,10}}{_S}(?:{_W}{_S}){{0,8}}?-w(?:{_S})?",
    rf"\b(?:ipmitool|sqlcmd|bcp|unzip|zip|mosquitto_\w{{3,5}}){_S}(?:{_W}{_S}){{0,8}}?-P(?:{_S})?",
    rf"\bmongo\w{{0,12}}{_S}(?:{_W}{_S}){{0,8}}?-p{_S}",
    rf"\bsqlplus{_S}(?:-\w+{_S}){{0,3}}[^\s/@]{{1,80}}/",
    rf"\bhtpasswd{_S}(?:-\w{{1,8}}{_S}){{0,3}}-\w{{0,5}}b\w{{0,5}}{_S}{_W}{_S}{_W}{_S}",
    rf"\bopenssl{_S}(?:{_W}{_S}){{0,8}}?-[kK]{_S}",
    rf"\bvault{_S}(?:kv{_S})?(?:put|write|patch){_S}{_W}{_S}[\w-]{{1,80}}=",
    rf"\brabbitmqctl{_S}(?:{_W}{_S}){{0,4}}?(?:add_user|change_password){_S}{_W}{_S}",
    rf"\bhttps?{_S}(?:{_W}{_S}){{0,4}}?(?:-a|--auth){_S}[^\s:]{{1,200}}:",
    rf"\blftp{_S}(?:{_W}{_S}){{0,4}}?-u{_S}[^\s,]{{1,200}},",
    r"\blogin\(\s{0,4}(?:\w{1,20}=[^\s,]{1,100},\s{1,4}){0,3}key\s{0,2}=\s{0,2}",
    rf"(?i:\b(?:one[ -]time|recovery|backup|verification|security|access|activation|pin|mfa|2fa)[ -](?:pass)?codes?"
    rf"(?:(?:\s{{1,4}}(?:is|was):?|:)\s{{1,4}}(?=\S{{0,40}}\d)|\s{{1,4}}(?={QUOTE}?{_RANDOM})))",
    r"(?i:\bmot de passe\s{0,4}:\s{0,4})",
    rf"\b7z\w?{_S}(?:{_W}{_S}){{0,4}}?-p",
    rf"\b(?:wandb|vault|ngc|huggingface-cli|hf|gh|glab|clearml){_S}(?:auth{_S})?login{_S}(?:--?\w+{_S}){{0,2}}(?!-)",
    rf"(?<![\w-])(?:-[uU]|--(?:proxy-)?user|--(?:src-|dest-)?creds|--cert)(?:{_S}|=)?(?!-)(?:[^\s:%,\"'/]{{1,200}}[:%])(?!\d{{1,7}}(?!\w))(?=\S)",
    rf"-pass\w{{0,5}}{_S}pass:",
    rf"\blogin{_S}{_W}{_S}password{_S}",
    rf"(?m:^)[ \t]*(?:login[ \t]+|export[ \t]+)?(?:passw(?:or)?d|{_VARIABLE})[ \t]+{_ORDINARY}(?=\S+[ \t]*(?m:$))",
    rf"{_PROSE}\s{{1,4}}(?i:(?:is|was|are|were|equals|ist)(?:\s{{1,4}}(?:now|(?:set|changed)\s{{1,4}}to))?:?\s{{1,4}})(?={QUOTE}?{_MIXED})",
    rf"(?i:\bpass(?:word|phrase|code)\s{{1,4}}(?:is|was):?\s{{1,4}}){_ORDINARY}",
    rf"(?i:\b(?:token|secret|key)(?:\s{{1,4}}(?:is|was):?)?\s{{1,4}})(?={QUOTE}?{_RANDOM})",
    r"(?i:\bapi key provided:\s{1,4})",
    r"(?i:\bcredentials?\s{1,4})(?=\()",
    r"\bjdbc:oracle:thin:[^\s/@]{1,200}/",
    r"(?i:\bpass(?:word|phrase|code)\s{1,4})(?=[\"'`])",
    r"(?i:\bpass(?:word|phrase|code) for (?:'[^'\n]{1,200}'|[^\n:]{1,80}):\s{1,4})(?=\S)",
    r"\b(?:Secret(?:Str|Bytes)?|HTTP(?:Basic|Digest|Proxy)Auth|BasicAuth)(?=\()",
    rf"\bcurl{_S}(?:{_W}{_S}){{0,8}}?-[bE](?:{_S})?",
    r"\becho\s{1,8}(?=[^|\n]{1,300}\|[^\n]{0,200}(?:login|passwd|sudo -S|password-stdin|kinit|cryptsetup))",
    r"(?m:^)[\w.*-]{1,200}:(?:\d{3,5}|\*):[^:\s]{1,100}:[^:\s\d][^:\s]{0,100}:(?![\d.]+(?m:$))(?=(?:[^:\s\\]|\\.){1,200}(?m:$))",
)  # fmt: skip
"""Words of commands and files after which a credential comes, whatever its name: only those that mean nothing else there."""
_COMMAND = re.compile("|".join(_COMMANDS))


def _named_values(text: str) -> Iterator[Span]:
    """Yield the values of telling names."""
    place = 0
    while name := _NAME.search(text, place):
        place = name.end()
        if _TELLING.search(text, max(name.start(), place - _LONGEST_NAME), place) and (span := _value_span(text, name)):
            yield span
            place = max(place, span[1] - _LONGEST_NAME)  # in quotes, the next name may stand at the end of what counts as value


def _value_span(text: str, match: re.Match[str]) -> Span | None:
    """Return where the value of a name is; None if it is no telling name, or if no value follows it."""
    name, begin, end = match[0][-_LONGEST_NAME:], match.start(), match.end()
    if not _names_secret(text, name, begin):
        return None
    if given := _NAMED_VALUE.match(text, end):
        return value_at(text, given.end())
    if nested := _NESTED.match(text, end):
        return nested.span(1)
    after = _SEPARATOR.match(text, end)
    if after is None or not _may_follow(text, name, begin, after):
        return None
    at = after.end()
    if _HEADER.search(name):
        return header_at(text, begin, at)
    if after["sign"] == ">":
        return at, max(at, text.find("<", at))
    span = value_at(text, at)
    return None if _is_ordinary(name, text, span) else span


def _is_ordinary(name: str, text: str, span: Span) -> bool:
    """Check whether a value of this name is no credential: a word for none, a number, a shell's folder."""
    if text.startswith(("/", "~", "."), span[0]):
        return name.upper().endswith("PWD")
    return bool(_NO_VALUE.match(text, *span) or (_COUNTED.search(name) and _NUMBER.match(text, *span)))


def _names_secret(text: str, name: str, begin: int) -> bool:
    if is_secret_name(name.strip("-.")):
        return True
    if text[begin - 1 : begin] == "\\" and is_secret_name(name[1:]):  # the name's first letter is an escaped character
        return True
    return name.lower() == "key" and bool(_KIND_OF_KEY.search(text, max(0, begin - 12), begin))


def _may_follow(text: str, name: str, begin: int, after: re.Match[str]) -> bool:
    """Check whether what comes after a telling name is its value."""
    sign, at = after["sign"], after.end()
    if sign == ">":
        return text[begin - 1 : begin] == "<"
    if sign == "," and name.startswith("-") and not after["close"]:
        return not text.startswith("-", at)
    if sign == ",":
        is_pair = name.startswith("-") or bool(
            (_IN_BRACKETS if name.lower() == "token" else _NO_FIELD).search(text, max(0, begin - 20), begin)
        )
        return is_pair and bool(after["close"].strip("`")) and _QUOTED.match(text, at) is not None
    if sign:
        return True
    is_given = (
        name.startswith("-")
        or _DECLARES.search(text, max(0, begin - 20), begin)
        or _AT_RANDOM.match(text, at)
        or ((name.isupper() or name == "passwd") and _LIKELY.match(text, at))
    )
    return bool(is_given and at > after.end("close") and not text.startswith("--", at))


def _command_values(text: str) -> Iterator[Span]:
    """Yield the credentials given to commands."""
    place = 0
    while command := _COMMAND.search(text, place):
        span = value_at(text, command.end())
        place = max(command.end(), span[1], place + 1)
        yield span
