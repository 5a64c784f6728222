"""The user's session: locale, proxies, settings of matplotlib and Python, and the folder of the checkout decide no result."""

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import matplotlib
import pytest
import yaml
from helpers.checkout import ROOT, SMALL, Checkout

from midtrace import environment
from midtrace.engines.server import session_for
from midtrace.errors import InputError
from midtrace.figures import style

ODD = "a study [1] (copy)"  # a folder
# A notebook's session on a machine in Kathmandu with an old locale, behind a proxy that does not answer.
SESSION = {
    **{"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "LANG": "C", "TZ": "Asia/Kathmandu"},
    **{"MPLBACKEND": "module://no_such_package.backend", "PYTHONHASHSEED": "7", "PYTHONOPTIMIZE": "1", "OMP_NUM_THREADS": "3"},
    **{"http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "POLARS_FMT_FLOAT": "full", "SOURCE_DATE_EPOCH": "1"},
}


def test_jobs_get_a_known_environment():
    jobs = environment.of_jobs({**SESSION, "PATH": "/bin", "PYTHONPATH": "/own", "MATPLOTLIBRC": "x", "PYTHONSTARTUP": "x.py"}, "/library")
    assert jobs.items() >= environment.SET.items()
    assert (jobs["PYTHONPATH"], jobs["PATH"], jobs["http_proxy"]) == ("/library:/own", "/bin", SESSION["http_proxy"])
    assert not {"MATPLOTLIBRC", "PYTHONSTARTUP", "PYTHONOPTIMIZE", "POLARS_FMT_FLOAT", "SOURCE_DATE_EPOCH"} & set(jobs)
    assert environment.of_jobs(jobs, "/library")["PYTHONUTF8"] == "1"


def test_another_encoding_is_refused_where_nothing_can_be_started_again():
    environment.in_utf8("UTF-8")
    with pytest.raises(InputError, match=r"PYTHONUTF8.*read as ISO-8859-1"):
        environment.in_utf8("ISO-8859-1")


@pytest.mark.parametrize(
    "settings", [{"lines.linewidth": 9.0, "axes.facecolor": "red"}, {"axes.titlepad": 40.0, "image.cmap": "jet", "font.size": 20}]
)
def test_a_figure_is_the_same_whatever_a_matplotlibrc_says(settings, tmp_path):
    def drawn(name: str) -> bytes:
        with style.drawing():
            figure = style.new(2.0)
            axes = figure.add_subplot()
            axes.plot([0, 1], [1, 0])
            axes.set_title("title")
        style.save(figure, [tmp_path / name])
        return (tmp_path / name).read_bytes()

    before = drawn("before.svg")
    with matplotlib.rc_context(settings):
        assert drawn("after.svg") == before


class _Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_on_this_machine_is_reached_past_a_proxy(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for host in ("127.0.0.1", "localhost"):
            url = f"http://{host}:{server.server_port}"
            assert session_for(url).get(url, timeout=5).status_code == 200
        server.shutdown()
    assert session_for("http://gpu7.example:8000").trust_env, "others are asked as the session says"
    assert session_for("http://10.0.0.7:8000").trust_env


def test_a_prompt_is_printed_in_any_locale(tmp_path):
    config = yaml.safe_load((ROOT / SMALL).read_text(encoding="utf-8"))
    config["arms"]["numeric_concise"]["suffix"] = "Köln \u2013 schnell!"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config, allow_unicode=True), encoding="utf-8")
    command = ["prompt", "--config", str(tmp_path / "config.yaml"), "--model", "embedded", "--benchmark", "chains", "--arm", "numeric_concise"]
    session = {**os.environ, **SESSION, "PYTHONPATH": str(ROOT / "workflow")}
    done = subprocess.run([sys.executable, "-m", "midtrace", *command], env=session, capture_output=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Köln \u2013 schnell!" in done.stdout.decode()


@pytest.mark.slow
def test_config_texts_and_items_are_utf8_in_any_session_and_folder(fresh: Checkout, tmp_path):
    tables = {}
    for folder, session in (("plain", {}), (ODD, SESSION)):
        checkout = fresh.clone(tmp_path / folder)
        rows = [
            {"id": f"é{k}", "question": f"Wie weit ist es nach Köln, {k} Meilen\u2028oder mehr?", "options": ["ja", "nein"], "answer": "A"}
            for k in range(4)
        ]
        (checkout.folder / "über [1].jsonl").write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")

        def edit(config: dict) -> None:
            config["benchmarks"]["odd"] = {"loader": "file", "path": "über [1].jsonl", "answer_kind": "choice"}
            config["run"] = {**config.get("run", {}), "benchmarks": ["odd"]}

        config = yaml.safe_load((checkout.folder / SMALL).read_text(encoding="utf-8"))
        edit(config)
        (checkout.folder / SMALL).write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
        checkout.snakemake("items", environment=session)
        tables[folder] = {name: path.read_bytes() for name, path in checkout.tables().items()}
    assert tables[ODD] == tables["plain"]
    assert len(tables["plain"]) >= 1


@pytest.mark.slow
def test_a_study_is_finished_in_any_session_and_its_figures_and_tables_stay_the_same(finished: Checkout, tmp_path):
    checkout = finished.clone(tmp_path / ODD)
    (checkout.folder / "matplotlibrc").write_text("lines.linewidth: 9\naxes.facecolor: red\n", encoding="utf-8")
    made = checkout.made()
    assert checkout.snakemake("--dry-run", environment=SESSION).jobs == set(), "a locale or a folder made jobs necessary"
    checkout.snakemake("--forcerun", "decompose", environment=SESSION)
    again = checkout.made()
    assert [name for name in made if made[name] != again[name]] == []
    assert made.keys() == again.keys()
    assert list(Path(checkout.folder, "results").rglob("figures/*.svg"))
