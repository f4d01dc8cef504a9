"""What is hidden as a secret, and what is not."""

from __future__ import annotations

import string

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.records import Assignment, Crashed, LaunchRequest, Run, Workload
from hotlap.redact import (
    HIDDEN,
    is_redacted,
    redacted,
    redacted_record,
    redacted_request,
    redacted_text,
    secrets_of,
)

HF = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz12345678"
GITHUB = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcDEF123_-"
HEXADECIMAL = "0123456789abcdef0123456789abcdef01234567"

SECRET = [
    (("--wandb-key", "hunter2"), ("--wandb-key", HIDDEN)),
    (("--wandb_key", "hunter2"), ("--wandb_key", HIDDEN)),
    (("--wandb-key=hunter2",), (f"--wandb-key={HIDDEN}",)),
    (("--api-key=X1",), (f"--api-key={HIDDEN}",)),
    (("--api_key", "abc"), ("--api_key", HIDDEN)),
    (("--apikey", "abc"), ("--apikey", HIDDEN)),
    (("--apiKey", "abc"), ("--apiKey", HIDDEN)),
    (("--hf-token", "abc"), ("--hf-token", HIDDEN)),
    (("--hf_token=abc",), (f"--hf_token={HIDDEN}",)),
    (("--token", "abc"), ("--token", HIDDEN)),
    (("--hub-token", "abc"), ("--hub-token", HIDDEN)),
    (("--use-auth-token", "abc"), ("--use-auth-token", HIDDEN)),
    (("--access_token", "abc"), ("--access_token", HIDDEN)),
    (("--password", "a b c"), ("--password", HIDDEN)),
    (("--db-password", "x"), ("--db-password", HIDDEN)),
    (("--passwd=x",), (f"--passwd={HIDDEN}",)),
    (("--db-pass", "hunter2"), ("--db-pass", HIDDEN)),
    (("--secret", "x"), ("--secret", HIDDEN)),
    (("--client-secret", "x"), ("--client-secret", HIDDEN)),
    (("--aws-secret-access-key", "wJalr/K7MDENG"), ("--aws-secret-access-key", HIDDEN)),
    (("--aws-access-key-id", "short"), ("--aws-access-key-id", HIDDEN)),
    (("--credentials", "user:pw"), ("--credentials", HIDDEN)),
    (("--auth", "user:pw"), ("--auth", HIDDEN)),
    (("HF_TOKEN=abc",), (f"HF_TOKEN={HIDDEN}",)),
    (("env", "WANDB_API_KEY=abc", "train.py"), ("env", f"WANDB_API_KEY={HIDDEN}", "train.py")),
    (("--env=HF_TOKEN=abc",), (f"--env=HF_TOKEN={HIDDEN}",)),
    (("PGPASSWORD=abc", "x"), (f"PGPASSWORD={HIDDEN}", "x")),
    (("MYSQL_PWD=abc",), (f"MYSQL_PWD={HIDDEN}",)),
    (("logger.wandb.api_key=abc",), (f"logger.wandb.api_key={HIDDEN}",)),
    (("+trainer.hf_token=abc",), (f"+trainer.hf_token={HIDDEN}",)),
    (("token=" + HF,), (f"token={HIDDEN}",)),
    ((HF,), (HIDDEN,)),
    (("--x", HF), ("--x", HIDDEN)),
    (("--remote", f"https://{GITHUB}@github.com/a/b"), ("--remote", f"https://{HIDDEN}@github.com/a/b")),
    (("--db", "postgres://u:PW@h/db"), ("--db", f"postgres://u:{HIDDEN}@h/db")),
    (("postgresql+psycopg2://u:p@ss!@h:5432/db?x=1",), (f"postgresql+psycopg2://u:{HIDDEN}@h:5432/db?x=1",)),
    (("redis://:PW@h:6379/0",), (f"redis://:{HIDDEN}@h:6379/0",)),
    (("--storage=mysql://root:a#b@h/optuna",), (f"--storage=mysql://root:{HIDDEN}@h/optuna",)),
    ((AWS,), (HIDDEN,)),
    (("--id", AWS), ("--id", HIDDEN)),
    (("xoxb-12345-abcdefghij",), (HIDDEN,)),
    (("sk-proj-abc123def456ghi789jkl",), (HIDDEN,)),
    (("sk-ant-api03-abcDEF_ghi-jkl",), (HIDDEN,)),
    ((JWT,), (HIDDEN,)),
    (("--header", "Authorization: Bearer abcdefgh123"), ("--header", f"Authorization: Bearer {HIDDEN}")),
    (("--header", "Authorization: Basic dXNlcjpwYXNz"), ("--header", f"Authorization: Basic {HIDDEN}")),
    (("--config", '{"api_key": "abc", "lr": 1}'), ("--config", '{"api_key": "***", "lr": 1}')),
    (("https://h/x?token=abc&lr=1",), (f"https://h/x?token={HIDDEN}&lr=1",)),
    (("--conn", "Server=h;Password=abc;Port=1"), ("--conn", f"Server=h;Password={HIDDEN};Port=1")),
    (("--key", HEXADECIMAL), ("--key", HIDDEN)),
    (("--comet-api-key", "x", "--lr", "1"), ("--comet-api-key", HIDDEN, "--lr", "1")),
    (("--name", "run-hunter2x", "--password", "hunter2x"), ("--name", f"run-{HIDDEN}", "--password", HIDDEN)),
]  # fmt: skip

ORDINARY = [
    ("--tokenizer", "bert-base-uncased"),
    ("--tokenizer-name=gpt2",),
    ("--max-tokens", "512"),
    ("--max_new_tokens", "1e3"),
    ("--token-count", "3"),
    ("--tokens", "all"),
    ("--num-tokens=100_000",),
    ("--keyframes", "abc"),
    ("--keypoints", "abc"),
    ("--pad-token-id", "0"),
    ("--pad-token", "<pad>"),
    ("--pad-token", "PAD"),
    ("--eos_token", "</s>"),
    ("--mask-token", "[MASK]"),
    ("--image-token", "image"),
    ("--monkey", "george"),
    ("--key-bits", "2048"),
    ("--key", "label"),
    ("--image-key", "observation_image_front_0123"),
    ("--sort-key", "length"),
    ("--keys", "a,b,c"),
    ("--primary-key=id",),
    ("--use-auth-token", "true"),
    ("--use-auth-token", "--lr", "3e-4"),
    ("--token", "False"),
    ("--password", "none"),
    ("--secret", "17"),
    ("--api-key", "${oc.env:WANDB_API_KEY}"),
    ("--hf-token", "$HF_TOKEN"),
    ("--password-file", "secrets/pw.txt"),
    ("--token-file=token.txt",),
    ("--secretary", "ada"),
    ("--pass", "2"),
    ("--num-pass", "train"),
    ("--bypass", "cache"),
    ("--compass", "north"),
    ("--pwd", "/data/x"),
    ("--auth", "oauth"),
    ("--author", "ada:lovelace"),
    ("--attention-key-dim", "64"),
    ("key=value",),
    ("model.key_dim=64",),
    ("--lr", "3e-4", "--epochs", "1"),
    ("--data", "s3://bucket/key/part"),
    ("--url", "http://localhost:8080/x@y"),
    ("--rdzv-endpoint", "localhost:29500"),
    ("--model", "sk-learn-pipeline"),
    ("--model", "hf_internal_testing_tiny_model"),
    ("--revision", HEXADECIMAL),
    ("--git-sha=" + HEXADECIMAL,),
    ("--monkey-patch", "true"),
    ("--signature", "serving_default"),
    ("--task", "keyword-spotting"),
    ("--checkpoint", "ckpt/step=1000.pt"),
    ("-m", "package.train"),
    ("train.py",),
]


def workload(*arguments: str) -> Workload:
    return Workload(kind="script", target="train.py", arguments=arguments, directory="/w", python="python")


@pytest.mark.parametrize(("given_words", "shown"), SECRET, ids=lambda it: " ".join(it)[:40])
def test_secrets_are_hidden(given_words: tuple[str, ...], shown: tuple[str, ...]) -> None:
    found = redacted(workload(*given_words))
    assert found.arguments == shown
    assert is_redacted(found) and redacted(found) == found


@pytest.mark.parametrize("words", ORDINARY, ids=lambda it: " ".join(it)[:40])
def test_ordinary_arguments_stay(words: tuple[str, ...]) -> None:
    assert redacted(workload(*words)).arguments == words
    assert redacted_text(" ".join(words)) == " ".join(words)


def test_the_table_is_large_enough() -> None:
    assert len(SECRET) >= 40 and len(ORDINARY) >= 40


PASSWORDS = st.text(alphabet=string.ascii_letters + string.digits, min_size=6, max_size=30).filter(str.isalpha)


@given(secret=PASSWORDS, flag=st.sampled_from(["--wandb-key", "--password", "HF_TOKEN", "--client_secret"]))
def test_no_given_secret_is_left_anywhere(secret: str, flag: str) -> None:
    of = workload(f"{flag}={secret}") if flag.isupper() else workload(flag, secret)
    if secret.lower() in ("false",):
        return
    assert all(secret not in it.partition("=")[2] and it != secret for it in redacted(of).arguments)
    assert secrets_of(of) == {secret}
    assert redacted_text(f"logged in with >{secret}<", secrets_of(of)) == f"logged in with >{HIDDEN}<"


@given(st.lists(st.text(max_size=40), max_size=6))
def test_redacting_twice_changes_nothing_more(words: list[str]) -> None:
    once = redacted(workload(*words))
    assert redacted(once) == once
    assert len(once.arguments) == len(words)


def test_text_is_searched_for_secrets_by_name_and_by_shape() -> None:
    text = f"OperationalError: postgres://u:PW@h/db\nHF_TOKEN={HF} api_key='abc' --wandb-key abc {AWS}"
    found = redacted_text(text)
    assert found == (
        f"OperationalError: postgres://u:{HIDDEN}@h/db\n"
        f"HF_TOKEN={HIDDEN} api_key='{HIDDEN}' --wandb-key {HIDDEN} {HIDDEN}"
    )
    assert redacted_text(found) == found


def test_a_private_key_is_hidden_as_a_whole() -> None:
    text = "before\n-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nafter"
    assert redacted_text(text) == f"before\n{HIDDEN}\nafter"


@pytest.mark.parametrize(
    "line",
    [
        "step 10 loss 2.31 tokens/s 51234",
        "KeyError: 'token'",
        "ValueError: key: label is not in the batch",
        "Special tokens have been added in the vocabulary, make sure the associated word embeddings are fine-tuned.",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x10 and 20x64)",
        'File "train.py", line 3, in <module>',
    ],
)
def test_what_scripts_print_stays(line: str) -> None:
    assert redacted_text(line) == line


def test_a_record_is_redacted_but_for_the_names_of_files() -> None:
    run = Run(
        ending=Crashed(exit_code=1, error="hunter2x is wrong", output_tail="a\nhunter2x"),
        output_path="/w/hunter2x/output.txt",
        notes=("hunter2x",),
    )
    found = redacted_record(run, {"hunter2x"})
    assert found.ending == Crashed(exit_code=1, error=f"{HIDDEN} is wrong", output_tail=f"a\n{HIDDEN}")
    assert found.notes == (HIDDEN,) and found.output_path == run.output_path
    assert redacted_record(found) is found


def test_requests_that_differ_in_secrets_alone_are_stored_alike() -> None:
    requests = [LaunchRequest(assignment=Assignment(workload=workload("--hf-token", it)), steps=3) for it in ("a", "b")]
    stored = [msgspec.json.encode(redacted_request(it)) for it in requests]
    assert stored[0] == stored[1] and b'"***"' in stored[0]


def test_variables_are_searched_too() -> None:
    environment = {"HF_TOKEN": "abcdefgh", "OMP_NUM_THREADS": "4", "PAD_TOKEN": "padding", "SHORT_PASSWORD": "abc"}
    assert secrets_of(workload(), environment) == {"abcdefgh"}
