"""The page on the network: the defaults that it shows are those that the controller writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.client.embedded import open_embedded
from tests.docs.pages import ROOT, blocks
from tests.support.names import POLICIES, SANDBOXES

Json = dict[str, Any]


def shown(first: str) -> Json:
    """Return the block of the page that begins with a comment."""
    page = ROOT / "docs" / "network.md"
    (found,) = (one.text for one in blocks(page, "yaml") if one.text.startswith(f"# {first}\n"))
    loaded: Json = yaml.safe_load(found)
    return loaded


def test_the_defaults_of_the_page_are_those_of_a_template_that_says_nothing(tmp_path: Path) -> None:
    """Its policy is the one that is shown, whole; its Pods have the fields that are shown."""
    with open_embedded(tmp_path) as cluster:
        for one in yaml.safe_load_all((ROOT / "examples" / "pool.yaml").read_text()):
            cluster.create({**one, "metadata": {**one["metadata"], "namespace": "default"}})
        cluster.until("a member", lambda: cluster.all(SANDBOXES, "default"))
        policy = cluster.find(POLICIES, "default", "python-network-policy")
        assert policy is not None
        assert policy["spec"] == shown("the policy of the template `python`")
        cluster.until("its Pod", lambda: cluster.all("pods", "default"))
        pod = cluster.all("pods", "default")[0]
        fields = shown("fields of a Pod of the template `python`")
        assert {key: pod["spec"].get(key) for key in fields} == fields
