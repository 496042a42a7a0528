"""A kubeconfig that cannot be used: the message names the file, the field and the way out."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Any

import pytest

from lean_sandbox.errors import ConfigError
from tests.kube.certificates import Certificates
from tests.kube.homes import EXEC, V1, Home


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"current": "none"}, "current-context"),
        ({"contexts": {}}, "current-context"),
        ({"contexts": "x"}, "contexts"),
        ({"contexts": [{"context": {}}]}, "contexts"),
        ({"contexts": [{"name": "main", "context": None}]}, r"contexts\[main\]\.context"),
        ({"context": {"cluster": None}}, r"contexts\[main\]\.context\.cluster"),
        ({"context": {"cluster": "other"}}, r"clusters\[other\]"),
        ({"context": {"user": "other"}}, r"users\[other\]"),
        ({"clusters": None}, r"clusters\[c\]"),
        ({"cluster": {"server": ""}}, r"cluster\.server"),
        ({"cluster": {"server": "h:6443"}}, r"cluster\.server"),
        ({"cluster": {"server": 6443}}, r"cluster\.server"),
        ({"cluster": {"proxy-url": "http://p"}}, "proxy-url"),
        ({"cluster": {"tls-server-name": 5}}, "tls-server-name"),
        (
            {"cluster": {"server": "https://h", "certificate-authority": "none.crt"}},
            r"\.certificate-authority",
        ),
        (
            {"cluster": {"server": "https://h", "certificate-authority-data": "%%"}},
            r"\.certificate-authority-data",
        ),
        (
            {"cluster": {"server": "https://h", "certificate-authority-data": "aGk="}},
            r"\.certificate-authority-data",
        ),
        (
            {"cluster": {"server": "https://h", "certificate-authority-data": " "}},
            r"\.certificate-authority-data",
        ),
        (
            {"cluster": {"server": "https://h", "certificate-authority-data": "//4="}},
            r"\.certificate-authority-data",
        ),
        ({"cluster": {"server": "https://h"}, "user": {"client-certificate": "x"}}, "client-key"),
        (
            {
                "cluster": {"server": "https://h"},
                "user": {"client-certificate": "none.crt", "client-key": "none.key"},
            },
            "client-certificate",
        ),
        (
            {
                "cluster": {"server": "https://h"},
                "user": {"client-certificate-data": "aGk=", "client-key-data": "aGk="},
            },
            "client-certificate",
        ),
        ({"user": {"token": 5}}, r"users\[u\]\.user\.token"),
        ({"user": {"token": "a b\n"}}, r"user\.token"),
        ({"user": {"tokenFile": "none"}}, "tokenFile"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider"),
        ({"user": {"username": "u", "password": "p"}}, "username"),
        *(
            ({"user": {name: "x", "token": "t"}}, r"user\.as")
            for name in ("as", "as-uid", "as-groups", "as-user-extra")
        ),
        ({"clusters": {"name": "c"}}, "clusters"),
        ({"clusters": [{"name": 5, "cluster": {}}]}, "clusters"),
        ({"clusters": ["c"]}, "clusters"),
        ({"cluster": {"server": "https://h\u00e9"}}, r"cluster\.server"),
        ({"cluster": {"server": "https://h /x"}}, r"cluster\.server"),
        ({"cluster": {"server": "https://u@h"}}, r"cluster\.server"),
        ({"cluster": {"server": "https://h?a=b"}}, r"cluster\.server"),
        ({"cluster": {"server": "https://h#a"}}, r"cluster\.server"),
        ({"cluster": {"server": "https://"}}, r"cluster\.server"),
        ({"cluster": {"server": "ftp://h"}}, r"cluster\.server"),
        ({"cluster": {"server": "http://h:99999"}}, r"cluster\.server"),
        *(
            (
                {"cluster": {"insecure-skip-tls-verify": True, name: "x", "server": "https://h"}},
                "insecure-skip-tls-verify",
            )
            for name in ("certificate-authority", "certificate-authority-data")
        ),
        (
            {"user": {"exec": EXEC | {"apiVersion": "client.authentication.k8s.io/v1alpha1"}}},
            "apiVersion",
        ),
        ({"user": {"exec": EXEC | {"interactiveMode": None}}}, "interactiveMode"),
        ({"user": {"exec": EXEC | {"interactiveMode": "Maybe"}}}, "interactiveMode"),
        ({"user": {"exec": {"apiVersion": V1}}}, r"users\[u\]\.user\.exec"),
    ],
)
def test_each_mistake_names_file_field_and_way_out(
    home: Home, changes: dict[str, Any], field: str
) -> None:
    """Whoever reads the message can correct the file without reading our code."""
    file = home.write(**{"cluster": {"server": "https://127.0.0.1"}, **changes})
    with pytest.raises(ConfigError, match=f"{field}: ") as caught:
        home.load()
    assert str(file) in str(caught.value)
    assert "To fix: " in str(caught.value)


CREDENTIALS: list[tuple[str, dict[str, Any]]] = [
    ("token", {"token": "SECRET"}),
    ("tokenFile", {"tokenFile": "tok"}),
    ("exec", {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "true"}}),
]


@pytest.mark.parametrize("server", ["http://10.0.0.1", "http://127.0.0.1.example", "http://[::2]"])
@pytest.mark.parametrize(("field", "user"), CREDENTIALS)
def test_no_credential_goes_where_others_can_read_it(
    home: Home, server: str, field: str, user: dict[str, Any]
) -> None:
    """On plain HTTP only this very machine gets one; the message names the field alone."""
    file = home.write(user=user, cluster={"server": server})
    with pytest.raises(ConfigError, match=rf"user\.{field}: is not sent") as caught:
        home.load()
    assert str(file) in str(caught.value)
    assert "SECRET" not in str(caught.value)
    (file.parent / "tok").write_text("t")
    for near in ("http://127.0.0.1:8001", "http://localhost", "http://[::1]:8001"):
        home.write(user=user, cluster={"server": near})
        assert home.load().server == near


def test_a_password_in_a_url_is_not_shown(home: Home) -> None:
    """It is refused, in words that do not hold it."""
    home.write(cluster={"server": "https://me:SECRET@host:6443"})
    with pytest.raises(ConfigError, match="server") as caught:
        home.load()
    assert "SECRET" not in str(caught.value)
    assert "host:6443" in str(caught.value)


def test_nesting_without_end_is_said_so(home: Home) -> None:
    """A thousand nested lists: an error that names the file."""
    file = home.write()
    file.write_text("a: " + "[" * 1000)
    with pytest.raises(ConfigError, match="is nested too deeply") as caught:
        home.load()
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "problem", "way_out"),
    [
        (b"a: [", "is not YAML: line ", "correct"),
        (b"a: b: c", "is not YAML: line 1, column 5: ", "correct"),
        (b"a: \x01", "is not YAML: special characters are not allowed", "correct"),
        (b"\xff\xfe", "cannot be read: ", "point --kubeconfig or KUBECONFIG at"),
        (b"- a", "is not a kubeconfig: ", "point --kubeconfig or KUBECONFIG at"),
        (b"", "is not a kubeconfig: ", "point --kubeconfig or KUBECONFIG at"),
    ],
)
def test_what_is_no_kubeconfig_is_said_so(
    home: Home, content: bytes, problem: str, way_out: str
) -> None:
    """Broken YAML, other encodings, other documents: the file, what is wrong, and the way out."""
    file = home.write()
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        home.load()
    told = str(caught.value)
    assert told.startswith(f"{file}: {problem}")
    assert way_out in told.removeprefix(f"{file}: {problem}")


def test_missing_files_are_named(home: Home) -> None:
    """The flag's file, those of KUBECONFIG, and all places looked at when nothing is set."""
    with pytest.raises(ConfigError, match="/nowhere"):
        home.load(Path("/nowhere"))
    home.environ["KUBECONFIG"] = "/one:/two"
    with pytest.raises(ConfigError, match="/one, /two"):
        home.load()
    home.environ = {"HOME": str(home.folder)}
    with pytest.raises(ConfigError, match="--kubeconfig") as caught:
        home.load()
    assert str(home.folder / ".kube" / "config") in str(caught.value)
    assert str(home.account) in str(caught.value)


def test_a_home_that_nobody_has_is_no_folder(
    home: Home, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user that is unknown is a file that is missing; a Pod may run as one without a home."""
    with pytest.raises(ConfigError, match="~nobody-here/config: the kubeconfig does not exist"):
        home.load(Path("~nobody-here/config"))
    user = {"client-certificate": "~nobody-here/c", "client-key": "k"}
    file = home.write(user=user, cluster={"server": "https://127.0.0.1"})
    with pytest.raises(ConfigError, match="client-certificate: cannot be read"):
        home.load(file)
    del home.environ["HOME"]
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    home.mount(certificates)
    assert home.load().in_cluster
    home.environ.clear()
    with pytest.raises(
        ConfigError, match=r"no kubeconfig(.|\n)*run in a Pod with a service account"
    ):
        home.load()


def test_an_unknown_context_lists_those_there_are(home: Home) -> None:
    """The way out holds the names to choose from."""
    home.write()
    with pytest.raises(ConfigError, match=r"'other'.*main"):
        home.load(context="other")
