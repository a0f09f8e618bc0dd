"""nginx, and nginx with a token bucket in Redis by its Lua module. Also the upstream of all that is measured."""

import hashlib
import os
import shutil
from pathlib import Path

import machine
from peers import BASICS, HTTP2, LOCAL, SHARED, TLS, Peer

MODULES = Path("/usr/lib/nginx/modules")
SCRIPT = Path(__file__).with_name("token_bucket.lua")
SCRATCH = "client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;"


def write(directory, http, workers=1, modules=()):
    """A configuration around what `http` says. What to run."""
    load = "".join(f"load_module {MODULES / module};\n" for module in modules)
    file = directory / "nginx.conf"
    file.write_text(
        f"""{load}worker_processes {workers};
daemon off;
pid nginx.pid;
error_log stderr crit;
events {{ worker_connections 24000; }}
http {{
  access_log off;
  {SCRATCH}
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  client_max_body_size 0;
{http}
}}
"""
    )
    return ["nginx", "-p", directory, "-c", file, "-g", user()]


def user():
    """As root, workers change to a user who cannot read a directory of the benchmark's."""
    return "user root;" if os.geteuid() == 0 else ""


class Nginx(Peer):
    name = "nginx"
    scenarios = BASICS | HTTP2 | TLS | LOCAL | {"half-peak", "memory", "spread"}
    install = "apt-get install nginx-light"

    def missing(self):
        return None if shutil.which("nginx") else "nginx"

    def command(self, plan):
        zone = {
            None: "",
            "pass": "limit_req_zone $binary_remote_addr zone=z:10m rate=1000000r/s;",
            "deny": "limit_req_zone $binary_remote_addr zone=z:10m rate=1r/m;",
        }[plan.limit]
        limit = {None: "", "pass": "limit_req zone=z burst=1000000 nodelay;", "deny": "limit_req zone=z;"}[plan.limit]
        return write(plan.dir, f"  limit_req_status 429;\n  {zone}\n{self.server(plan, limit)}", plan.workers)

    def server(self, plan, limit):
        options = (" ssl" if plan.tls else "") + (" http2" if plan.http2 else "")
        certificate = f"ssl_certificate {plan.tls.cert}; ssl_certificate_key {plan.tls.key};" if plan.tls else ""
        return f"""  upstream up {{ server 127.0.0.1:{plan.upstream}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{plan.port}{options};
    {certificate}
    location / {{
      {limit}
      proxy_pass http://up;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_request_buffering off;
      client_body_buffer_size 128k;
      proxy_buffer_size 16k;
      proxy_buffers 16 16k;
      proxy_busy_buffers_size 64k;
      proxy_max_temp_file_size 0;
    }}
  }}"""

    def version(self):
        return machine.first_line(["nginx", "-v"])


class NginxLua(Nginx):
    """Each request asks Redis over a connection kept open."""

    name = "nginx-lua"
    scenarios = SHARED | {"latency"}
    install = "apt-get install nginx-light libnginx-mod-http-lua lua-nginx-redis"
    files = [MODULES / "ngx_http_lua_module.so", Path("/usr/share/lua/5.1/nginx/redis.lua")]

    def missing(self):
        return super().missing() or next((str(file) for file in self.files if not file.exists()), None)

    def command(self, plan):
        if not plan.limit:
            return super().command(plan)
        rate, burst = (1_000_000, 1_000_000) if plan.limit == "pass" else (1, 1)
        period_us = 1_000_000 if plan.limit == "pass" else 3_600_000_000
        key = "ngx.var.http_x_key" if plan.keyed else "ngx.var.remote_addr"
        lua = f"""
local redis = require("nginx.redis"):new()
redis:set_timeout(1000)
local ok, err = redis:connect("127.0.0.1", {plan.redis})
if not ok then ngx.log(ngx.CRIT, err) return ngx.exit(502) end
local key = "rate:" .. {key}
local taken, err = redis:evalsha(limit_script.sha, 1, key, {rate}, {period_us}, {burst})
if not taken and err and err:sub(1, 8) == "NOSCRIPT" then
  taken, err = redis:eval(limit_script.text, 1, key, {rate}, {period_us}, {burst})
end
if not taken then ngx.log(ngx.CRIT, err) return ngx.exit(502) end
redis:set_keepalive(60000, 256)
if taken[1] == 0 then
  ngx.header["Retry-After"] = math.ceil(taken[2] / 1000000)
  return ngx.exit(429)
end
"""
        (plan.dir / "limit.lua").write_text(lua)
        init = f"""  init_by_lua_block {{
    local file = assert(io.open("{SCRIPT.resolve()}"))
    limit_script = {{ text = file:read("*a"), sha = "{script_hash()}" }}
    file:close()
  }}
"""
        server = self.server(plan, f"access_by_lua_file {plan.dir}/limit.lua;")
        return write(plan.dir, init + server, plan.workers, ["ndk_http_module.so", "ngx_http_lua_module.so"])


def script_hash():
    """What Redis calls the script."""
    return hashlib.sha1(SCRIPT.read_bytes()).hexdigest()
