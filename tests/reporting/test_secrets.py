"""No credential passes, in any notation and after any character; figures, names, digests and paths do."""

from itertools import product

import pytest

from torchmatrix.core import secrets
from torchmatrix.core.secrets import without_secrets

SHAPED = {
    "github": "ghp_" + "a1B2c3D4e5" * 3,
    "pat": "github_pat_" + "11ABCDEFG0" * 3,
    "gitlab": "glpat-" + "x9Y8z7W6v5" * 2,
    "hf": "hf_" + "AbCdEfGhIj" * 3,
    "nv": "nvapi-" + "Ab12Cd34Ef" * 4,
    "openai": "sk-proj-" + "Ab12Cd34Ef" * 4,
    "openai2": "sk-" + "Ab12Cd34Ef" * 4,
    "anth": "sk-ant-api03-" + "Ab1_Cd3-Ef" * 4,
    "slack": "xoxb-123456789012-" + "Ab12Cd34Ef",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "aws2": "ASIAIOSFODNN7EXAMPLE",
    "google": "AIza" + "SyA1234567" * 4,
    "pypi": "pypi-AgEIcHlwaS5vcmc" + "Ab12" * 10,
    "npm": "npm_" + "Ab12Cd34" * 5,
    "dckr": "dckr_pat_" + "Ab12Cd34Ef" * 3,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "kubeconfig": "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t" + "Ab12" * 10,
    "discord": "discord.com/api/webhooks/1234567890/" + "Ab12Cd34Ef" * 4,
    "telegram": "bot1234567890:AA" + "Ab12Cd34Ef" * 3,
    "wandb": "wandb_v1_" + "Ab12Cd34Ef" * 4,
    "grafana": "glsa_" + "Ab12Cd34Ef" * 4,
    "azure": "abc8Q~" + "Ab12Cd34Ef" * 3 + "xyz1",
    "linear": "lin_api_" + "Ab12Cd34Ef" * 4,
    "notion": "ntn_" + "Ab12Cd34Ef" * 4,
    "pinecone": "pcsk_" + "Ab12Cd34Ef" * 5,
    "runpod": "rpa_" + "AB12CD34EF" * 4,
    "jina": "jina_" + "ab12cd34ef" * 6,
    "supabase": "sbp_" + "ab12cd34ef" * 4,
    "square": "sq0atp-" + "Ab12Cd34Ef" * 2 + "xy",
    "newrelic": "NRAK-" + "AB12CD34EF" * 2 + "AB12CD3",
    "terraform": "Ab12Cd34Ef1234.atlasv1." + "Ab12Cd34Ef" * 6,
    "artifactory": "AKCp8" + "Ab12Cd34Ef" * 6 + "Ab12Cd34",
    "bitbucket": "ATBB" + "Ab12Cd34Ef" * 3,
    "telegram2": "1234567890:AA" + "Ab12Cd34Ef" * 3 + "xyz",
    "google2": "GOCSPX-" + "Ab12Cd34Ef" * 3,
    "kaggle": "KGAT_" + "ab12cd34ef" * 4,
    "sonar": "sqp_" + "ab12cd34ef" * 4,
    "netlify": "nfp_" + "Ab12Cd34Ef" * 4,
    "bedrock": "ABSK" + "Ab12Cd34Ef" * 12,
    "vault batch": "hvb." + "Ab12Cd34Ef" * 10,
    "doppler": "dp.pt." + "Ab12Cd34Ef" * 4,
    "elevenlabs": "sk_" + "ab12cd34ef" * 4 + "ab12cd34",
    "circleci": "CCIPAT_" + "Ab12Cd34Ef" * 4,
    "gitlab runner": "GR1348941" + "Ab12Cd34Ef" * 2,
    "atlassian": "ATCTT3x" + "Ab12Cd34Ef" * 6,
    "jfrog reference": "cmVmdGtuOjAx" + "Ab12Cd34Ef" * 5,
    "vercel": "vercel_blob_rw_" + "Ab12Cd34Ef" * 4,
    "mapbox": "sk.eyJ" + "Ab12Cd34Ef" * 6 + "." + "Ab12Cd34Ef" * 2,
    "aws3": "FwoGZXIvYXdzEIhQ" + "Ab12Cd34Ef" * 6,
}
"""Tokens that are recognized by their form."""
BEFORE = [
    "",
    " ",
    "n",
    "\\n",
    "\\t",
    "\x1b[31m",
    "\\x1b[31m",
    "[0m",
    "%3D",
    "%0A",
    "=",
    "_",
    "x",
    "0",
    "'",
    '\\"',
    "(",
    "\\u003d",
    "\\x0a",
    "é",
    "-",
    ".",
    "/",
    ":",
]
CARRIERS = [
    "password={}",
    "password: {}",
    "PASSWORD={}",
    "export DB_PASSWORD={}",
    "export HF_TOKEN={}",
    "set WANDB_API_KEY={}",
    "$env:HF_TOKEN = {}",
    "--password {}",
    "--password={}",
    "--token {}",
    "--api-key={}",
    "--hf-token {}",
    "-password {}",
    "['--token', '{}']",
    '["--password", "{}"]',
    "('--token', '{}')",
    "'--token', b'{}'",
    '["train.py", "--hf_token={}"]',
    "- --token\n- {}",
    "--token \\\n  {}",
    "Password for 'https://github.com': {}",
    "PSK={}",
    "wifi.psk: {}",
    "preshared key: {}",
    "Kennwort: {}",
    "contraseña: {}",
    "mot de passe : {}",
    "totp: {}",
    "sbatch --export=ALL,MYPASS={} job",
    "recovery code: {}",
    "your one-time code is {}",
    "mongosh -u bob -p {}",
    "sqlplus -s bob/{}@ORCL",
    "htpasswd -cb file bob {}",
    "openssl enc -aes-256-cbc -k {}",
    "['openssl', 'enc', '-k', '{}']",
    "vault kv put secret/x value={}",
    "rabbitmqctl add_user bob {}",
    "http -a bob:{} https://x",
    "lftp -u bob,{} host",
    "echo {} | kinit bob",
    'wandb.login(key="{}")',
    'password <- "{}"',
    "password: !vault {}",
    "password: |\\n  {}",
    "--token\x00{}",
    "--token\\x00{}",
    '{{"password": "{}"}}',
    "{{'password': '{}'}}",
    '{{\\"password\\": \\"{}\\"}}',
    '{{\\\\\\"password\\\\\\": \\\\\\"{}\\\\\\"}}',
    "{{&quot;password&quot;: &quot;{}&quot;}}",
    "password%3D{}",
    '{{"clientSecret":"{}"}}',
    "{{'accessToken': u'{}'}}",
    "{{'api_key': b'{}'}}",
    "Cookie: session={}",
    "Set-Cookie: sid={}; Path=/; HttpOnly",
    "cookie: a=b; c={}",
    "{{'Cookie': 'a=b; c={}'}}",
    "-H 'Cookie: a=b; c={}'",
    "curl -b 'session={}'",
    "cookies={{'sid': '{}'}}",
    "--cookie 'sid={}'",
    "curl -u user:{} https://x",
    "curl --user user:{} https://x",
    "curl -uuser:{}",
    "['curl', '-u', 'user:{}']",
    '"-u","user:{}"',
    "curl --proxy-user me:{}",
    "skopeo copy --src-creds me:{}",
    "smbclient -U user%{}",
    "curl -u 'user:{}'",
    "https://user:{}@host/x",
    "postgres://u:{}@db:5432/x",
    "https:\\/\\/user:{}@host",
    "redis://:{}@h:6379",
    "mongodb+srv://u:{}@h",
    "https%3A%2F%2Fuser%3A{}%40host",
    "git+https://{}@git.x/y",
    "nhttps://u:{}@h",
    "Authorization: Bearer {}",
    "Authorization: Basic {}",
    "Authorization: {}",
    "authorization: token {}",
    'Authorization: Digest username="u", response="{}"',
    "Authorization: AWS4-HMAC-SHA256 Credential=x/y, Signature={}",
    "Proxy-Authorization: Basic {}",
    "{{'Authorization': 'Bearer {}'}}",
    '-H "Authorization: Bearer {}"',
    "-H 'Authorization: Negotiate {}'",
    '\\"Authorization\\": \\"Bearer {}\\"',
    "X-Api-Key: {}",
    "X-Auth-Token: {}",
    "PRIVATE-TOKEN: {}",
    "('Authorization', 'Bearer {}')",
    "http.extraheader=AUTHORIZATION: basic {}",
    "Authorization=Bearer {}",
    "x-goog-api-key: {}",
    "Ocp-Apim-Subscription-Key: {}",
    "docker login -u me -p {} reg",
    "docker login --password {}",
    "['docker', 'login', '-u', 'me', '-p', '{}']",
    "podman login -p{} reg",
    "sshpass -p {} ssh x",
    "sshpass -p '{}' ssh",
    "['sshpass', '-p', '{}']",
    "mysql -u root -p{} db",
    "mysqldump -p'{}' db",
    "redis-cli -a {} ping",
    "az login -u x -p {}",
    "helm registry login -p {} r",
    "wandb login {}",
    "unzip -P {} a.zip",
    "openssl enc -pass pass:{}",
    "ldapsearch -x -w {} -D cn",
    "echo {} | docker login --password-stdin",
    "echo '{}' | sudo -S ls",
    "ipmitool -P {} chassis",
    "MYSQL_PWD={} mysql",
    "PGPASSWORD={} psql",
    "vault login {}",
    "machine h login u password {}",
    "machine h\n  login u\n  password {}\n",
    'password = "{}"',
    "password = '{}'",
    'password = """{}"""',
    "[auth]\npassword={}\n",
    "token: {}\n",
    "token: '{}'\n",
    "password: |\n  {}\nnext: 1",
    "password: >-\n    {}\n",
    "password:\n    {}",
    "- name: HF_TOKEN\n  value: {}",
    '{{"name": "HF_TOKEN", "value": "{}"}}',
    'name: HF_TOKEN\n    value: "{}"',
    "<password>{}</password>",
    "//registry.npmjs.org/:_authToken={}",
    "_auth = {}",
    '"auth": "{}"',
    "ENV HF_TOKEN {}",
    "ENV HF_TOKEN={}",
    "ARG NPM_TOKEN={}",
    "setenv API_KEY {}",
    'token="{}"',
    "token: str = '{}'",
    'token: Optional[str] = "{}"',
    "os.environ['HF_TOKEN'] = '{}'",
    'os.environ["SECRET"]="{}"',
    "login(token='{}')",
    'Client(api_key="{}", x=1)',
    "getenv('TOKEN', '{}')",
    "token = os.getenv('X', '{}')",
    "SecretStr('{}')",
    "password=SecretStr('{}')",
    "secret => '{}'",
    "password := {}",
    "('password', '{}')",
    "password is {}",
    "Password for user: {}",
    "API key: {}",
    "access token: {}",
    "AccountKey={};EndpointSuffix=x",
    "Server=x;Uid=sa;Pwd={};",
    "SharedAccessKey={}",
    "aws_secret_access_key = {}",
    "secret_key={}",
    "\\nHF_TOKEN={}",
    "\\npassword={}",
    "\x1b[32mtoken\x1b[0m=\x1b[33m{}\x1b[0m",
    "nTOKEN={}",
    "%0AAWS_KEY={}",
    "https://x/?token={}&b=1",
    "https://x/?a=1&sig={}",
    "https://x?api_key={}",
    "?access_token={}",
    "private_key: {}",
    "passphrase={}",
    "DB_PASS={}",
    "smtp_pass: {}",
    "auth=('user', '{}')",
    "auth: Bearer {}",
    "-storepass {}",
    "--http-password={}",
    "--oauth2-bearer {}",
    "client-secret: {}",
    "secret/data: token={}",
    "TOKEN = {}  # comment",
    "x.token={}",
    "spark.ssl.keyPassword={}",
    "javax.net.ssl.trustStorePassword={}",
    "password1={}",
    "pass={}",
    "kubectl create secret generic x --from-literal=password={}",
    "jwt={}",
    "session_key={}",
    "hf auth login --token {}",
    "sudo -p '' echo {} | sudo -S x",
    'password=\\"{}\\"',
    "passwd: {}",
    "'secret': ('{}',)",
    "token=[{}]",
    "credentials: {{user: a, pw: {}}}",
    "basic_auth: admin:{}",
    "bearer: {}",
    "BasicAuth('u', '{}')",
    'HTTPBasicAuth("u", "{}")',
    'setx HF_TOKEN "{}"',
    "postgresql+psycopg2://u:{}@h:5432/db?sslmode=require",
    "s3://key:{}@bucket",
    "jdbc:oracle:thin:scott/{}@//h:1521/x",
    "The password is: {}",
    "client-key-data: {}",
    "Incorrect API key provided: {}. You can find it",
    "bad credentials ('user', '{}')",
    "GH_PAT={}",
    "gh --github-pat {}",
    "x --pat={}",
    "LDAP_BIND_PW={}",
    "db_pw: {}",
    "rootpw={}",
    "SSHPASS={} sshpass -e ssh",
    "fernet_key={}",
    'oauth_signature="{}"',
    '<password type="plain">{}</password>',
    '<string name="api_key">{}</string>',
    "<property><name>fs.s3a.secret.key</name>\n <value>{}</value></property>",
    "secrets:\n  one: {}\n  two: {}",
    "credentials:\r\n  - user: x\r\n    it: {}\r\n",
    "'credentials': {{\n  'user': 'x',\n  'it': '{}'\n}}",
]
"""Texts in which a name says that {} is a credential."""
LINES = (
    "token is {}",
    "my api key is '{}'",
    "invalid token '{}'",
    "password {}",
    "  password {}  ",
    "db.host:5432:name:user:{}",
    "WANDB_API_KEY {}",
    "wandb: api_key {}",
    "token\t{}",
    "API_KEY is {}",
    "the WANDB_API_KEY was {}",
    "HF_TOKEN is set to '{}'",
    "MY_SECRET is: {}",
    "AWS_SECRET_ACCESS_KEY is now {}",
    "the access token is {}",
    "passwords are {}",
    "password was changed to {}",
    'DB_PASSWORD equals "{}"',
)
"""Lines of files and of logs; in some of them only a value that looks like a credential is recognized."""
VALUES = ("hunter2-Zq9xLmP4", "p,w;x9Zq", "0123456789abcdef0123456789abcdef", "aB3dxYc9zZ==")


@pytest.mark.parametrize("name", SHAPED)
def test_a_token_is_recognized_by_its_form_after_any_character(name: str) -> None:
    token = SHAPED[name]
    for before, after in product(BEFORE, ("", " ", "\\n", '"', "\\x1b[0m", "&b=1", ")")):
        shown = without_secrets(f"saw {before}{token}{after} there")
        assert token not in shown and token[8:] not in shown and "there" in shown, (before, after, shown)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_value_is_recognized_by_its_name_in_any_notation(carrier: str) -> None:
    for value, (begin, end) in product(VALUES, (("", ""), ("ran: ", "\nnext line"), ('{"error": "', '"}'))):
        text = begin + carrier.format(value, value) + end
        shown = without_secrets(text)
        assert value not in shown and value[4:] not in shown, (text, shown)
        assert without_secrets(shown) == shown


@pytest.mark.parametrize(
    "second", ["'X-Auth-Token: {}'", "'password: {}'", '"api-key: {}"', "'Cookie: {}'", "'Authorization: {}'"]
)
@pytest.mark.parametrize("between", [" -H ", " --header ", "; -H ", ", "])
@pytest.mark.parametrize("first", ["'X-Api-Key: {}'", '"X-Api-Key: {}"', "'token: {}'"])
def test_of_two_quoted_headers_in_a_line_both_go(first: str, between: str, second: str) -> None:
    line = f"curl -H {first.format('AAA111bbb')}{between}{second.format('BBB222ccc')} https://example.org/a"
    shown = without_secrets(line)
    assert "AAA111" not in shown and "BBB222" not in shown and "ccc" not in shown, shown


@pytest.mark.parametrize(
    "address",
    [
        "https://us/er:{}@host/path",
        "proxy http://DOM/user:{}@proxy:3128",
        "git+https://oauth2/x:{}@git.example.org/x.git",
        "postgres:\\/\\/a/b:{}@db/x",
        "https://first.last/er:{}@host.example.org:443/",
    ],
)
def test_a_password_is_recognized_behind_a_user_with_a_slash(address: str) -> None:
    for value in ("hunter2QQxyz", "hunt/er2QQ", "only-letters"):
        shown = without_secrets(f"before {address.format(value)} after")
        assert value not in shown and "er2QQ" not in shown and shown.startswith("before ") and shown.endswith(" after"), shown


@pytest.mark.parametrize("line", LINES)
def test_a_value_alone_in_its_line_is_recognized(line: str) -> None:
    shown = without_secrets(f"before\n{line.format(VALUES[0])}\nafter")
    assert VALUES[0] not in shown and shown.startswith("before\n") and shown.endswith("after")


@pytest.mark.parametrize(
    "key",
    [
        "-----BEGIN {0}PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQ\n-----END {0}PRIVATE KEY-----",
        '{{"private_key": "-----BEGIN {0}PRIVATE KEY-----\\nMIIEvQIBADANBg\\nkqhkiG9w0BAQ\\n-----END {0}PRIVATE KEY-----\\n"}}',
        "-----BEGIN {0}PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQ",
        "x-----BEGIN {0}PRIVATE KEY BLOCK-----\n\nMIIEvQIBADANBg\nkqhkiG9w0BAQ\n-----END {0}PRIVATE KEY BLOCK-----",
    ],
)
def test_a_private_key_goes_whole(key: str) -> None:
    for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", "PGP "):
        shown = without_secrets("before " + key.format(kind))
        assert "MIIE" not in shown and "kqhk" not in shown and shown.startswith("before ")


@pytest.mark.parametrize(
    "text",
    [
        "12345.6 images/s ± 0.4 %, 8 x NVIDIA H100 80GB HBM3, 700 W, 1.13 ×",
        "meta-llama/Llama-3.1-8B-Instruct, google/gemma-2-9b-it",
        "nvcr.io/nvidia/pytorch@sha256:" + "0123456789abcdef" * 4,
        "commit 0eb500a3f1c2d4e5f6a7b8c9d0e1f2a3b4c5d6e7",
        "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py:1234",
        "max_new_tokens=128, num_tokens: 4096, MAX_TOKENS=12",
        "12,345 tokens/s, 3.2 ms per token",
        "pad_token='[PAD]', eos_token_id=50256, bos_token: <s>",
        "Token indices sequence length is longer",
        "torch2.5.1+cu124-py3.11-task-scheduler-with-a-long-name",
        "disk-usage-of-the-whole-machine-and-more",
        "forward_pass: 3.2 ms",
        "PWD=/home/x",
        "KeyError: 'x'",
        "keys: ['a', 'b']",
        "missing keys: ['token', 'model']",
        "secret",
        "the password is wrong",
        "password required",
        "docker run -u 1000:1000 -p 8080:80 image",
        "mkdir -p a/b",
        "ssh -p 22 host",
        "python -u bench.py: done",
        "mysql --port 3306 -port",
        "token=None, password=null",
        "author: Ada, authored 2026",
        "key_size=3, monkey=4, keyboard",
        "git+https://github.com/x/y@v1.0",
        "https://registry.npmjs.org/@scope/pkg",
        "https://host:8080/path@v1",
        "a tokenizer: bert-base-uncased",
        "-uall",
        "passed: 12, pass 3",
        "basic Transformer blocks",
        "session of 3 hours",
        "model.layers.0.self_attn.k_proj.weight",
        "GPU-3f9a1c2e-77aa-4b1c-9d2e-0a1b2c3d4e5f",
        "CUDA error: an illegal memory access was encountered",
        "sha512-" + "aB3/" * 20,
        "numpy==1.26.4 --hash=sha256:" + "0a" * 32,
        "1:2:3: x",
        "00:11:22:33:44:55",
        "12:34:56.789 INFO step 100",
        "float8_e4m3fn",
        "x[::2]",
        "std::vector<int>",
        "sequence_length",
        "time to first token: 12.3 ms, seconds per token: 0.0031",
        "forward pass: 3.2 ms, pass: 3, max_token=77",
        "the loss went step:100:loss:0.5:acc:0.9",
        "epoch:1000:loss:1:2",
        "sk-learn-contrib-project-templates, pypi-server-of-the-company",
        "grep -E 'foo:bar' x; sed -E s:a:b:",
        "unexpected token: '}'",
        "API key: not set",
        "API_KEY is required to log in; HF_TOKEN is deprecated",
        "WANDB_API_KEY is unset, so offline; the secret is out",
        "the cache key is resnet50-b64, the missing key is layer1.0.conv1.weight",
        "password was changed",
        "see https://docs.example.org/x:443/path@v1 and docker://ghcr.io/a/b:1@sha256:00ff",
        "https://pypi.org/simple/torch/2.7.1:cp311@x",
        "https://medium.com/@user/post:1",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize("token", ["1//0" + "Ab12Cd34Ef" * 4, "sl." + "Ab12Cd34Ef" * 10, "ab12cd34ef" * 3 + "ab-us12"])
def test_a_token_without_a_telling_beginning_is_recognized_as_a_word(token: str) -> None:
    assert token not in without_secrets(f"refresh {token}, then") and "then" in without_secrets(f"refresh {token}, then")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://conda.anaconda.org/t/ab-1234abcd-12ab-12ab/acme/y.whl", "https://conda.anaconda.org/t/…/acme/y.whl"),
        ("https://dl.cloudsmith.io/Ab12Cd34Ef56Gh78/acme/priv/simple/", "https://dl.cloudsmith.io/…/acme/priv/simple/"),
        ("https://pypi.fury.io/Ab12Cd34Ef56Gh78Ij90/acme/", "https://pypi.fury.io/…/acme/"),
        ("https://dl.cloudsmith.io/public/acme/x/", "https://dl.cloudsmith.io/public/acme/x/"),
        ("https://pypi.fury.io/acme/", "https://pypi.fury.io/acme/"),
        ("https://conda.anaconda.org/conda-forge/linux-64", "https://conda.anaconda.org/conda-forge/linux-64"),
    ],
)
def test_a_token_in_the_path_of_a_package_index_is_recognized(address: str, shown: str) -> None:
    assert without_secrets(f"index = {address} here") == f"index = {shown} here"


def test_a_bearer_token_is_recognized_behind_a_colour() -> None:
    for colour in ("\x1b[0m ", "\\x1b[33m", " \\n"):
        assert "abcdefghijklmnopqrst" not in without_secrets(f"sent Bearer{colour}abcdefghijklmnopqrst")


def test_what_is_too_long_to_be_looked_at_is_cut_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 50_000
    monkeypatch.setattr(secrets, "MOST_CHARACTERS", most)
    long = "x " * (most // 2) + "password=hunter2"
    shown = without_secrets(long)
    assert "hunter2" not in shown and shown.endswith("letters were cut)") and len(shown) < most
    token = SHAPED["hf"]
    for place in range(most - len(token), most, 7):
        assert "hf_" not in without_secrets(("x " * most)[:place] + token + " x" * 10)
