#!/usr/bin/env python3
"""Draws a study: lines of a CSV file or of lines of JSON, the mean over seeds with the range that they cover.

usage: scripts/plot.py FILE --x COLUMN --y COLUMN --by COLUMN [--where COLUMN=VALUE ...] [--mean-only] [--log-y] [--title T] --out FILE.svg

Rows that agree in everything asked for are taken for seeds. Needs matplotlib.
"""

import argparse
import collections
import csv
import json
import pathlib
import sys


def rows(path):
    text = pathlib.Path(path).read_text()
    if text.lstrip().startswith("{"):
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return list(csv.DictReader(text.splitlines()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--x", required=True)
    parser.add_argument("--y", required=True)
    parser.add_argument("--by", required=True, help="column that tells the lines apart")
    parser.add_argument("--where", action="append", default=[], metavar="COLUMN=VALUE")
    parser.add_argument("--x-label")
    parser.add_argument("--y-label")
    parser.add_argument("--title", default="")
    parser.add_argument("--log-y", action="store_true")
    parser.add_argument("--mean-only", action="store_true", help="leave out the ranges, where they would cover each other")
    parser.add_argument("--even-x", action="store_true", help="the same distance between any two neighbours on x")
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()

    lines = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows(arguments.file):
        if all(str(row.get(name)) == value for name, value in (part.split("=", 1) for part in arguments.where)):
            if row.get(arguments.y) not in (None, ""):
                lines[str(row[arguments.by])][float(row[arguments.x])].append(float(row[arguments.y]))
    if not lines:
        sys.exit(f"plot.py: {arguments.file} has no row with `{arguments.y}` that fits")

    import matplotlib

    matplotlib.use("svg")
    # Text stays text, and the same rows give the same file.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "forebay", "font.size": 10})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 3.8), layout="constrained")
    places = sorted({x for points in lines.values() for x in points})
    place = (lambda x: places.index(x)) if arguments.even_x else (lambda x: x)
    for name, points in lines.items():
        known = sorted(points)
        at = [place(x) for x in known]
        mean = [sum(points[x]) / len(points[x]) for x in known]
        (line,) = axes.plot(at, mean, marker="o", markersize=4, label=name)
        low, high = [min(points[x]) for x in known], [max(points[x]) for x in known]
        if not arguments.mean_only:
            axes.fill_between(at, low, high, alpha=0.15, color=line.get_color(), linewidth=0)
    if arguments.even_x:
        axes.set_xticks(range(len(places)), [f"{x:g}" for x in places])
    if arguments.log_y:
        axes.set_yscale("log")
    axes.set_xlabel(arguments.x_label or arguments.x)
    axes.set_ylabel(arguments.y_label or arguments.y)
    axes.set_title(arguments.title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    pathlib.Path(arguments.out).parent.mkdir(parents=True, exist_ok=True)
    # The drawing alone: nothing of when and by what it was made.
    figure.savefig(arguments.out, metadata=dict.fromkeys(["Creator", "Date", "Format", "Type"]))


if __name__ == "__main__":
    main()
