#!/usr/bin/env bash
# Checks the metrics that a run serves: that Prometheus understands them, that each one is documented, and that what
# an operator looks at first is there.
#
# Usage: scripts/check_prometheus.sh [ADDRESS]        (default 127.0.0.1:9464; the run must be going on)
# Uses promtool where it is installed, else the Python package prometheus_client, else a plain look at the lines.
set -euo pipefail

address="${1:-127.0.0.1:9464}"
root="$(cd "$(dirname "$0")/.." && pwd)"
page="$(mktemp)"
trap 'rm -f "$page"' EXIT

curl --fail --silent --show-error --max-time 5 "http://$address/healthz" >/dev/null
curl --fail --silent --show-error --max-time 5 "http://$address/metrics" >"$page"

if command -v promtool >/dev/null; then
    promtool check metrics <"$page"
    parser=promtool
elif python3 -c 'import prometheus_client' 2>/dev/null; then
    python3 -c '
import sys
from prometheus_client.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
assert families, "no metrics"
for family in families:
    assert family.documentation, f"{family.name} has no help text"
    assert family.type != "unknown", f"{family.name} has no type"
' <"$page"
    parser=prometheus_client
else
    # A sample is a name, perhaps labels, and a number.
    if grep --invert-match --extended-regexp '^(#.*|[a-z_:]+(\{.*\})? [-+0-9.eE]+|[a-z_:]+(\{.*\})? [-+]?(Inf|NaN))$' "$page"; then
        echo "the lines above are not in Prometheus' text format" >&2
        exit 1
    fi
    parser="line pattern"
fi

failed=0
while read -r name; do
    grep --quiet --fixed-strings "\`$name\`" "$root/docs/metrics.md" || {
        echo "$name is not in docs/metrics.md" >&2
        failed=1
    }
done < <(sed --quiet --regexp-extended 's/^# TYPE ([a-z_]+) .*/\1/p' "$page")

for name in env_steps_total updates_total policy_version queue_depth queue_capacity producer_blocked_seconds_total \
    learner_starved_seconds_total lag_in_flight_updates_bucket lag_in_queue_updates_bucket actor_lag_updates \
    dropped_unrolls_total ledger_env_steps resident_memory_bytes build_info; do
    grep --quiet --extended-regexp "^forebay_$name[ {]" "$page" || {
        echo "forebay_$name is missing" >&2
        failed=1
    }
done

[ "$failed" -eq 0 ] || exit 1
echo "$address: $(grep --count '^# TYPE' "$page") metrics, read by $parser, all documented"
