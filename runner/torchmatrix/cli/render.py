"""The verb `report`: one run, several machines side by side, or a site of many runs."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import in_json, list_runs, read_prices, say, say_unreadable, width
from torchmatrix.core import plugins
from torchmatrix.core.errors import BadInput
from torchmatrix.core.files import scratch
from torchmatrix.core.formatting import count
from torchmatrix.core.inputs import read_text
from torchmatrix.core.toml_keys import nearest, shown

if TYPE_CHECKING:
    from torchmatrix.analysis.machines import Chosen
    from torchmatrix.analysis.prices import PriceList
    from torchmatrix.facts.store import Results, RunFolder
    from torchmatrix.reporting.overview.answers import Answers
    from torchmatrix.reporting.page import Brand
    from torchmatrix.reporting.redaction import Redaction


@dataclass(frozen=True, kw_only=True, slots=True)
class _PageOptions:
    """The options of a page."""

    output: Path
    redact: bool
    with_messages: bool
    baseline: str | None
    baseline_gpu: str | None
    own_batch: bool
    brand: "Brand"

    @property
    def of_machines(self) -> bool:
        return self.own_batch or self.baseline_gpu is not None


@options.app.command()
def report(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="last (the default), last~1 or a run's id. Several runs, all or last-30d: their machines side by side.",
            show_default=False,
            autocompletion=options.complete_runs,
        ),
    ] = None,
    results: options.ResultsOption = options.RESULTS,
    output: options.OutputOption = options.REPORT,
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="The same as RUN.", autocompletion=options.complete_runs)
    ] = None,
    machines: Annotated[
        bool, typer.Option("--machines", help="Compare all machines, each by its newest complete run.")
    ] = False,
    baseline_gpu: Annotated[
        str | None,
        typer.Option("--baseline-gpu", metavar="GPU", help='The GPU that others are relative to, such as "RTX 3090".'),
    ] = None,
    own_batch: Annotated[
        bool, typer.Option("--own-batch", help="Compare each machine at its own batch, and show the batch.")
    ] = False,
    publish: Annotated[
        Path | None, typer.Option("--publish", metavar="DIR", help="Write a static site of many runs into this folder.")
    ] = None,
    page: Annotated[
        str | None, typer.Option("--page", metavar="NAME=PATH", help="Write a plugin's page; --publish DIR is site=DIR.")
    ] = None,
    since: options.SinceOption = None,
    host: options.HostOption = None,
    redact: options.RedactOption = False,
    with_messages: options.MessagesOption = False,
    prices: options.PricesOption = None,
    as_json: options.JsonOption = False,
    title: Annotated[
        str | None, typer.Option("--title", metavar="TEXT", help="The page's heading, instead of the hardware.")
    ] = None,
    logo: Annotated[Path | None, typer.Option("--logo", metavar="FILE", help="An image above the heading.")] = None,
    accent: Annotated[str | None, typer.Option("--accent", metavar="COLOUR", help="The colour of links: '#0a5aa8'.")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="STACK",
            help="The stack that speed-ups are relative to; default: the first.",
            autocompletion=options.complete_stacks,
        ),
    ] = None,
) -> None:
    """Render a run, or several machines side by side, as one HTML file; or many runs as a website.

    Only reads recorded results; needs no engine.
    """
    from torchmatrix.facts.store import Results, select_each

    page_options = _PageOptions(
        output=output, redact=redact, with_messages=with_messages, baseline=baseline, baseline_gpu=baseline_gpu,
        own_batch=own_batch, brand=_brand(title, logo, accent),
    )  # fmt: skip
    if publish and page:
        raise BadInput("--publish and --page name two pages", hint="use one of the two options")
    pages = _asked_page(page) if page else ("site", publish) if publish else None
    options.refuse_messages(with_messages, redact or pages is not None)
    if pages and (machines or page_options.of_machines or baseline):
        raise BadInput(
            f"{'--publish' if publish else '--page'} renders all its pages by itself",
            hint="leave out --baseline, --machines, --baseline-gpu and --own-batch",
        )
    if pages:
        _refuse_unknown(pages[0])
    store, named = Results(results), [*(words or ()), *([run_id] if run_id else ())]
    several = bool(pages or machines or page_options.of_machines)
    list_runs(store)
    runs = select_each(store, named or ["all" if several else "last"], since, host)

    gc.disable()  # everything read is needed to the end: collecting garbage took a fifth of the time
    held = read_prices(prices, runs)
    if pages:
        from torchmatrix.reporting.pages import PageRequest

        gc.enable()  # of thousands of runs not everything is needed to the end
        request = PageRequest(
            results=store, runs=runs, target=pages[1], redact=redact, with_messages=with_messages, prices=held,
            brand=page_options.brand, tell=say,
        )  # fmt: skip
        _tell(plugins.made(plugins.PAGES, pages[0], _is_written, request), None, as_json)
    elif several or len(runs) > 1:
        _tell(*_compare_machines(store, runs, named, page_options, held), as_json)
    else:
        _tell(*_render(store, runs[0], page_options, held), as_json)


def _tell(written: Path, answers: "Answers | None", as_json: bool) -> None:
    """Print the answers and where the page is; `as_json`: as an object of both."""
    if as_json:
        print(in_json({"page": str(written), **(answers.as_record() if answers else {})}))
        return
    if answers:
        say(f"{answers.in_words(width())}\n")
    print(written)


def brand_in(matrix: str) -> "Brand":
    """Return the brand that a matrix file's text asks for; ours, with a note, where it can't be used."""
    from torchmatrix.reporting import page

    try:
        return page.brand_in(matrix)
    except BadInput as error:
        say(f"note: [report] of the matrix is left out: {error}")
        return page.OURS


def _brand(title: str | None, logo: Path | None, accent: str | None) -> "Brand":
    """Return the brand by the options, else that of the matrix file here. Raises BadInput for options that can't be used."""
    from torchmatrix.reporting import page

    asked = page.brand_of(title, logo, accent)
    try:
        here = brand_in(read_text(options.MATRIX, hint="torchmatrix plan names its faults"))
    except (OSError, BadInput):
        here = page.OURS
    return page.Brand(title=asked.title or here.title, logo=asked.logo or here.logo, accent=asked.accent or here.accent)


def _asked_page(page: str) -> tuple[str, Path]:
    """Return the name and the path of NAME=PATH. Raises BadInput for another form."""
    name, sign, path = page.partition("=")
    if not sign or not path:
        raise BadInput(f"--page {shown(page)} names no path", hint="--page NAME=PATH, such as site=public")
    return name, Path(path)


def _refuse_unknown(name: str) -> None:
    """Raise BadInput for an unknown page, EngineUnusable for one that can't be loaded."""
    if name not in (names := plugins.names(plugins.PAGES)):
        raise BadInput(f"there is no page {shown(name)}", hint=nearest(name, names))
    plugins.load(plugins.PAGES, name)


def _is_written(path: Any) -> bool:
    """Check whether a page gave the path of a file that is there."""
    return isinstance(path, str | Path) and Path(path).is_file()


def _render(store: "Results", run: "RunFolder", page_options: _PageOptions, held: "PriceList") -> "tuple[Path, Answers]":
    from torchmatrix.analysis import facts_cache
    from torchmatrix.reporting import redaction
    from torchmatrix.reporting import report as pages

    with scratch() as temporary:
        shown, cleaner = (
            redaction.redacted(store, run, temporary, say, page_options.with_messages) if page_options.redact else (run, None)
        )
        found = None if cleaner else facts_cache.whole(store, run)
        page = pages.page_of(shown, page_options.baseline, held, found, page_options.brand)
    say_unreadable(page.unreadable, cleaner=cleaner)
    return pages.save(page.text, page_options.output), page.answers


def _compare_machines(
    store: "Results", runs: "Sequence[RunFolder]", named: Sequence[str], page_options: _PageOptions, held: "PriceList"
) -> "tuple[Path, Answers]":
    from torchmatrix.reporting import machines_page, page

    with scratch() as temporary:
        redact_into = temporary if page_options.redact else None
        chosen, cleaner = one_of_each(store, runs, named, redact_into, page_options.with_messages)
        made = machines_page.compared(chosen, page_options.baseline_gpu, page_options.own_batch, held)
        shown = machines_page.shown_of(*made)
        text = machines_page.page_of(*made, brand=page_options.brand, shown=shown)
        say_unreadable(made[0].unreadable, cleaner=cleaner)
        return page.save(text, page_options.output), shown.answers


def one_of_each(
    store: "Results", runs: "Sequence[RunFolder]", named: Sequence[str], redact_into: Path | None, with_messages: bool
) -> "tuple[list[Chosen], Redaction | None]":
    """Choose one run of each machine, redact it into `redact_into` if that is given, and say how many runs are left out.
    Return the choice, and what redacted it.

    Raises BadInput.
    """
    from torchmatrix.analysis import machines
    from torchmatrix.reporting import redaction

    chosen = machines.newest_complete(runs)
    if len(chosen) == 1:
        raise BadInput(
            f"{count(len(runs), 'run')} of one machine, {chosen[0].machine.label}; a comparison of machines needs two",
            hint=f"one run: torchmatrix report {runs[-1].id}; two: torchmatrix compare RUN RUN; all: torchmatrix history",
        )
    if len(named) == len(runs) > len(chosen):
        raise BadInput(
            "two of these runs are of one machine; a comparison of machines takes one of each",
            hint="two runs of one machine: torchmatrix compare RUN RUN",
        )
    if older := len(runs) - len(chosen):
        say(f"{count(len(chosen), 'machine')}, each by its newest complete run; {count(older, 'other run')} left out")
    if redact_into:
        with redaction.redacting(store, say, with_messages) as cleaner:
            return redaction.staged_choice(chosen, cleaner, redact_into), cleaner
    return chosen, None
