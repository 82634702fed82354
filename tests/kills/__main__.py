"""`python -m tests.kills --stack scale --moments 40 --seed 1 --only worker,disk --out FOLDER`."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kills.doubles import Receiver
from tests.kills.journal import Journal
from tests.kills.product import Product, Services

if TYPE_CHECKING:
    from tests.kills.world import World

START_S = 240.0


def main() -> int:
    options = _options()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="sb-kills-", dir=options.folder, ignore_cleanup_errors=True
    ) as folder:
        Path(folder).chmod(0o711)
        product = Product(Path(folder), options.stack)
        if options.stack == "scale":
            product.services = Services(Path(folder) / "services")
        try:
            return _run(product, options, out)
        finally:
            product.stop()
            if options.keep:
                _keep(product, out)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--stack", choices=("embedded", "scale"), default="embedded")
    parser.add_argument("--moments", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=120, help="no moment begins after them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="words in names of faults, with commas between")
    parser.add_argument("--activities", default="", help="names of activities, with commas between")
    parser.add_argument("--out", default="var/kills", help="folder for report and logs")
    parser.add_argument("--folder", default=None, help="where the installation is made")
    parser.add_argument("--keep", action="store_true", help="keep its logs beside the report")
    return parser.parse_args()


def _run(product: Product, options: argparse.Namespace, out: Path) -> int:
    journal = Journal()
    receiver = Receiver(journal.hear)
    product.environ["SWITCHBACK_WEBHOOK_HOSTS"] = receiver.host
    os.environ.update(product.own_environ())
    _prepare(product)

    from tests.kills.world import make_world

    world = make_world(
        product.urls, product.folder, seed=options.seed, journal=journal, receiver=receiver
    )
    try:
        return _struck(product, options, out, world, journal, receiver)
    finally:
        world.close()


def _struck(
    product: Product,
    options: argparse.Namespace,
    out: Path,
    world: World,
    journal: Journal,
    receiver: Receiver,
) -> int:
    """All moments, and the report."""
    from tests.kills.activities import Activities
    from tests.kills.faults import Scene, faults_on
    from tests.kills.matrix import Matrix, Moment, states
    from tests.kills.report import markdown, moment_line, write_line

    lines = out / f"kills-{options.stack}.jsonl"
    lines.unlink(missing_ok=True)

    def say(moment: Moment) -> None:
        write_line(lines, moment_line(moment))
        print(json.dumps(moment_line(moment)), flush=True)

    product.start()
    _wait_for_pages(product)
    world.start()
    hook = {"target": f"http://{receiver.host}/hook", "topics": ["run.ended", "climb.turned"]}
    world.admin.post("webhooks", hook)
    draw = random.Random(options.seed)
    activities = Activities(world, draw, product.tend)
    if options.activities:
        chosen = options.activities.split(",")
        activities.all = {name: activities.all[name] for name in chosen}
    matrix = Matrix(Scene(product, world, draw), activities, say)
    only = tuple(word for word in options.only.split(",") if word)
    moments = matrix.run(
        options.moments, faults_on(options.stack, only), limit_s=60 * options.minutes
    )
    world.ingest.finish()
    at_rest = matrix.rest()
    if world.ingest.failure:
        at_rest.append(f"ingest: {world.ingest.failure}")
    load = f"Load of the machine at the end: {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores."
    text = markdown(
        moments,
        stack=options.stack,
        seed=options.seed,
        totals=journal.totals(),
        states=states(),
        troubles=world.client.troubles,
        at_rest=at_rest,
        load=load,
    )
    (out / f"kills-{options.stack}.md").write_text(text, encoding="utf-8")
    write_line(lines, {"at_rest": at_rest, "totals": journal.totals(), "states": states()})
    print(text)
    is_sound = all(moment.has_passed for moment in moments if moment.counts) and not at_rest
    return 0 if is_sound else 1


def _prepare(product: Product) -> None:
    """Django on the product's database, and a model of two layers."""
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0)
    import subprocess

    model = "from pathlib import Path; from training.prepare import make_tiny; "
    model += f"make_tiny(Path({str(product.folder / 'tiny')!r}), seed=1)"
    subprocess.run([sys.executable, "-c", model], check=True)


def _wait_for_pages(product: Product) -> None:
    import httpx

    deadline_s = time.monotonic() + START_S
    for url in product.urls:
        while True:
            try:
                if httpx.get(f"{url}/healthz", timeout=5).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            if time.monotonic() > deadline_s:
                raise SystemExit(f"no pages at {url}; see {product.folder}")
            time.sleep(0.2)  # noqa: TID251 # a condition with a limit


def _keep(product: Product, out: Path) -> None:
    import shutil

    for log in (*product.folder.glob("*.out"), *product.data.glob("logs/*")):
        shutil.copy(log, out / f"{product.stack}-{log.name}")


if __name__ == "__main__":
    sys.exit(main())
