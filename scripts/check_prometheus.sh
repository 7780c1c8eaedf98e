#!/usr/bin/env bash
# Checks the metrics of a running training with a real Prometheus server: starts a run, lets promtool read its page,
# lets the server scrape it, and asks the server's query API for what an operator looks at first. Then Ctrl-C ends the
# run, which must end in order.
#
# usage: scripts/check_prometheus.sh [BINARY]          (default target/release/forebay)
#
# Takes `prometheus` and `promtool` from the path, or else out of the Debian package `prometheus`, without installing
# it. Exits 77 when they cannot be had.
set -euo pipefail

root="$(cd "$(dirname "$0")/.." && pwd)"
binary="${1:-$root/target/release/forebay}"
work="$(mktemp -d)"
children=()
finish() {
    for child in "${children[@]}"; do kill -KILL "$child" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT

if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then
    if (cd "$work" && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb package); then
        PATH="$work/package/usr/bin:$PATH"
    else
        echo "the package prometheus cannot be had"
        exit 77
    fi
fi

# A free loopback port for the server.
port="$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')"

# Waits up to 30 s until a command succeeds.
wait_until() {
    for _ in $(seq 300); do
        if "$@" >/dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    echo "waited in vain for: $*" >&2
    return 1
}

run="$work/run"
"$binary" train "$root/configs/quickstart.toml" --run-dir "$run" --set stop.env_steps=1000000000000 \
    --set learner.check_every=50 --set evaluation.every_env_steps=100000 \
    --set 'telemetry.listen="127.0.0.1:0"' --set 'telemetry.progress="off"' &
training=$!
children+=("$training")
wait_until test -s "$run/metrics.jsonl"
address="$(cat "$run/address.txt")"

page="$work/page"
curl --fail --silent --show-error --max-time 5 "http://$address/healthz" >/dev/null
curl --fail --silent --show-error --max-time 5 "http://$address/metrics" >"$page"
promtool check metrics <"$page"
failed=0
while read -r name; do
    grep --quiet --fixed-strings "\`$name\`" "$root/docs/metrics.md" || {
        echo "$name is not in docs/metrics.md" >&2
        failed=1
    }
done < <(sed --quiet --regexp-extended 's/^# TYPE ([a-z_]+) .*/\1/p' "$page")

cat >"$work/prometheus.yml" <<YAML
global: { scrape_interval: 500ms, scrape_timeout: 400ms }
scrape_configs:
  - job_name: forebay
    static_configs: [{ targets: ["$address"] }]
YAML
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/data" \
    --web.listen-address="127.0.0.1:$port" --log.level=warn >"$work/prometheus.log" 2>&1 &
children+=("$!")

# The value of a query; fails while there is none.
query() {
    curl --fail --silent --max-time 5 --get "http://127.0.0.1:$port/api/v1/query" --data-urlencode "query=$1" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["data"]["result"][0]["value"][1])'
}
for expression in \
    'up{job="forebay"} == 1' \
    'sum(forebay_env_steps_total) > 0' \
    'forebay_updates_total > 0' \
    'forebay_policy_version > 0' \
    'forebay_return_mean' \
    'forebay_episodes_total > 0' \
    'forebay_episode_length_steps_count > 0' \
    'forebay_evaluation_return' \
    'forebay_queue_depth' \
    'forebay_queue_capacity > 0' \
    'sum(forebay_producer_blocked_seconds_total)' \
    'forebay_learner_starved_seconds_total' \
    'forebay_lag_in_flight_updates_count > 0' \
    'forebay_lag_in_queue_updates_count > 0' \
    'sum(forebay_actor_lag_updates)' \
    'forebay_rho_clip_fraction' \
    'forebay_c_clip_fraction' \
    'forebay_entropy_nats > 0' \
    'forebay_approx_kl_nats' \
    'forebay_log_prob_difference_nats == 0' \
    'forebay_gradient_norm > 0' \
    'sum(forebay_skipped_updates_total)' \
    'sum(forebay_dropped_unrolls_total)' \
    'sum(forebay_ledger_env_steps) > 0' \
    'forebay_busy_fraction{role="learner"} > 0' \
    'forebay_busy_fraction{role="rollout"} > 0' \
    'forebay_overlap_efficiency > 0' \
    'forebay_resident_memory_bytes > 0' \
    'forebay_build_info'; do
    if wait_until query "$expression"; then
        echo "$expression: $(query "$expression")"
    else
        failed=1
    fi
done

kill -INT "$training"
wait "$training"
python3 - "$run/summary.json" <<'PYTHON'
import json, sys
summary = json.load(open(sys.argv[1]))
assert summary["status"] == "interrupted", summary["status"]
PYTHON
[ "$failed" -eq 0 ] || exit 1
echo "Prometheus scraped $address; all documented, all there"
