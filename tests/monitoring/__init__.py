"""deploy/prometheus and deploy/grafana against a real Prometheus, on demand: `make monitoring-test`."""
