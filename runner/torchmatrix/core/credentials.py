"""Patterns of the credentials of well-known services, so that they are found wherever text leaves this machine."""

import re

_ESCAPED = r"(?<=\\[nrtbfv0])|(?<=[\d;[]m)|(?<=%[0-9A-Fa-f]{2})|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u00[0-9A-Fa-f]{2})"
"""The beginning of a word although a letter is before it, which ends an escaped character or a colour of a terminal."""
SHAPES = (
    r"gh[opsur]_[A-Za-z0-9]{20,}", r"github_pat_\w{20,}", r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt)-[\w-]{16,}",
    r"hf_[A-Za-z0-9]{16,}", r"api_org_[A-Za-z0-9]{20,}", r"nvapi-[\w-]{16,}", r"xox[abeprs]-[\w-]{10,}", r"xapp-\d-[\w-]{20,}",
    r"A(?:KIA|SIA)[0-9A-Z]{16}", r"AIza[\w-]{30,}", r"ya29\.[\w-]{20,}", r"pypi-Ag[\w-]{20,}", r"npm_[A-Za-z0-9]{30,}",
    r"dckr_[po]at_[\w-]{20,}", r"[\w~.]{3}8Q~[\w~.-]{30,}", r"do[opr]_v1_[0-9a-f]{40,}", r"dapi[0-9a-f]{32}",
    r"hv[sb]\.[\w-]{24,}", r"GOCSPX-[\w-]{20,}", r"(?<![\w/:])1//0[\w-]{30,}", r"ABSK[A-Za-z0-9+/=]{60,}",
    r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._]{30,}", r"(?<![\w.])sl\.(?=[\w-]{0,80}\d)[\w-]{60,}",
    r"sk_[0-9a-f]{48}", r"cmVmdGtuOj[A-Za-z0-9]{40,}", r"GR1348941[\w-]{20,}", r"(?<!\w)[0-9a-f]{32}-us\d{1,2}(?!\w)",
    r"[sp]k\.eyJ[\w-]{20,}\.[\w-]{10,}",
    r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}", r"whsec_[A-Za-z0-9]{20,}", r"SG\.[\w-]{20,}\.[\w-]{20,}", r"gsk_[A-Za-z0-9]{30,}",
    r"r8_[A-Za-z0-9]{30,}", r"lsv2_\w{2}_[0-9a-f]{30,}", r"xai-[A-Za-z0-9]{40,}", r"pplx-[A-Za-z0-9]{30,}",
    r"AT[AC]TT3x[\w=-]{40,}", r"wandb_v\d_\w{20,}", r"gl(?:sa|c)_[A-Za-z0-9+/=_]{30,}", r"shp(?:at|ss|ca|pa)_[0-9a-fA-F]{32}",
    r"tgp_v1_[\w-]{30,}",
    r"(?:lin_api|fo1|fm\d|pscale_(?:tkn|pw|oauth)|pcsk|figd|ntn|sbp|rpa|sgp|bkua|jina|unkey|fw|secret|CLOJARS|KGAT|sq[pau]|nfp|pnu|CCIPAT|vercel_blob_rw)_"
    r"(?=[A-Za-z]{0,80}\d)[\w+/=-]{22,}",
    r"sq0(?:atp|csp)-[\w-]{20,}", r"NRAK-[A-Z0-9]{27}", r"\.atlasv1\.[\w-]{50,}", r"HRKU-[\w-]{36,}", r"mfa\.[\w-]{60,}",
    r"AKCp[A-Za-z0-9]{60,}", r"ATBB[A-Za-z0-9]{28,}", r"ops_eyJ[\w-]{40,}", r"\d{8,10}:AA[\w-]{33}", r"EAAAE[\w-]{50,}",
    r"(?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[\w+/=]{40,}",
    r"rubygems_[0-9a-f]{40,}", r"tskey-\w{2,10}-[\w-]{20,}", r"PMAK-[0-9a-f]{20,}", r"sntry[su]_[\w+/=]{30,}",
    r"discord(?:app)?\.com/api/webhooks/\d{1,25}/[\w-]{20,}", r"bot\d{6,12}:[\w-]{30,}", r"LS0tLS1CRUdJTi[\w+/=]{20,}",
    r"v1\.0-[0-9a-f]{20,40}-[0-9a-f]{100,200}", r"pul-[0-9a-f]{40}",
    r"(?<![\w.])s\.(?=[A-Za-z]{0,24}\d)[A-Za-z0-9]{24}(?![\w.(])", r"(?<![A-Za-z0-9])SK[0-9a-f]{32}(?!\w)",
    r"(?<![\w-])key-[0-9a-f]{32}(?!\w)", r"(?<!\w)[12][A-Za-z0-9]{26}_[A-Za-z0-9]{20,60}(?!\w)",
    r"AGE-SECRET-KEY-1[0-9A-Z]{30,}", r"hooks\.slack\.com/services/[\w/]{20,}", r"sk-(?:proj|ant|svcacct|or|None)-[\w-]{20,}",
    r"sk-[A-Za-z0-9]{32,}", rf"(?:(?<![A-Za-z0-9])|{_ESCAPED})(?:sk|pypi)-(?=[\w-]{{0,80}}\d)[\w-]{{20,}}",
    r"\$(?:1|2[aby]|5|6|7|y|argon2id?)\$[\w./$,=+-]{20,}",
    r"(?<![\w-])(?=(?P<before>[\w-]*?)eyJ)(?P=before)(?=(?P<head>[\w-]{11,}))(?P=head)\.(?=(?P<body>[\w-]{8,}))(?P=body)\.[\w-]{8,}",
)  # fmt: skip
"""Patterns of the tokens of well-known services, after any character; of hashed passwords, and JSON Web Tokens.

A JSON Web Token is tried once for each run of characters: a match of a lookahead is not shortened to try again.
"""
KEY = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"
"""The beginning of a private key."""
_SURE = re.compile(rf"{'|'.join(SHAPES)}|{KEY}|://[^\s/\"'<>@:]{{1,200}}:[^\s/\"'<>@]{{1,200}}@")


_IN_ADDRESS = re.compile(r"(?<=://)[^\s/\"'<>@]{1,400}@")


def without_passwords(text: str) -> str:
    """Return a text whose addresses have no names and passwords."""
    return _IN_ADDRESS.sub("…@", text)


def line_of_first(text: str) -> int | None:
    """Return the line (from 1) of the first certain credential: a token, a private key, a password in an address."""
    match = _SURE.search(text)
    return text.count("\n", 0, match.start()) + 1 if match else None
