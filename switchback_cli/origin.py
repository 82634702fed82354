"""Where a change comes from, as CI systems tell it in the environment. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def source_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Commit, branch, pull request and address of GitHub Actions, GitLab CI or Jenkins."""
    get = environ.get
    server, repository = get("GITHUB_SERVER_URL"), get("GITHUB_REPOSITORY")
    number = get("GITHUB_REF_NAME", "").partition("/merge")[0]
    is_request = get("GITHUB_EVENT_NAME", "").startswith("pull_request")
    jobs = {
        "commit": get("GITHUB_SHA") or get("CI_COMMIT_SHA") or get("GIT_COMMIT"),
        "branch": get("GITHUB_HEAD_REF")
        or get("CI_COMMIT_REF_NAME")
        or get("CHANGE_BRANCH")
        or get("GIT_BRANCH")
        or get("GITHUB_REF_NAME"),
        "pull_request": (number if is_request and number.isdecimal() else "")
        or get("CI_MERGE_REQUEST_IID")
        or get("CHANGE_ID"),
        "url": get("CI_JOB_URL")
        or get("BUILD_URL")
        or (server and f"{server}/{repository}/actions/runs/{get('GITHUB_RUN_ID')}"),
    }
    return {name: text for name, text in jobs.items() if text}


def name_of(source: Mapping[str, str]) -> str:
    """For people, where nobody gave a name."""
    if source.get("pull_request"):
        return f"Pull request {source['pull_request']}"
    if source.get("branch"):
        return f"Branch {source['branch']}"
    return f"Commit {source['commit'][:12]}" if source.get("commit") else "From a terminal"
