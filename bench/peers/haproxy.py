"""HAProxy. Its limit is a count of requests per address over ten seconds."""

import shutil

import machine
from peers import BASICS, HTTP2, LOCAL, TLS, Peer

MOST = {"pass": 2_000_000_000, "deny": 1}


class Haproxy(Peer):
    name = "haproxy"
    scenarios = BASICS | HTTP2 | TLS | LOCAL | {"h2-upstream"} | {"memory", "spread"}
    install = "apt-get install haproxy"

    def missing(self):
        return None if shutil.which("haproxy") else "haproxy"

    def command(self, plan):
        limit = ""
        if plan.limit:
            limit = f"""
  stick-table type ip size 100k expire 30s store http_req_rate(10s)
  http-request track-sc0 src
  http-request return status 429 hdr Retry-After 1 if {{ sc_http_req_rate(0) gt {MOST[plan.limit]} }}"""
        options = " proto h2" if plan.http2 and not plan.tls else ""
        if plan.tls:
            options = f" ssl crt {plan.tls.both} alpn {'h2' if plan.http2 else 'http/1.1'}"
        server = " proto h2" if plan.http2_upstream else ""
        file = plan.dir / "haproxy.cfg"
        file.write_text(
            f"""global
  nbthread {plan.workers}
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  http-reuse always
  option forwardfor
frontend in
  bind 127.0.0.1:{plan.port}{options}{limit}
  default_backend up
backend up
  server one 127.0.0.1:{plan.upstream}{server}
"""
        )
        return ["haproxy", "-db", "-f", file]

    def version(self):
        return machine.first_line(["haproxy", "-v"])
