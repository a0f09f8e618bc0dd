-- What a client of the benchmark asks for, told by the environment, and wrk's figures as `name=value` lines.
--
-- UPLOAD=bytes    POST a body of that length
-- KEYS=n          a field x-key, of n values; in turn, so that all of them come
-- START=n         the first of them
-- FRESH=1         each request over a connection of its own
-- ROUTES=n        the paths /service-1/x to /service-n/x, at random
-- PIPELINE=n      so many requests at once: only to fill tables, never to measure

local upload = tonumber(os.getenv("UPLOAD"))
local keys = tonumber(os.getenv("KEYS"))
local routes = tonumber(os.getenv("ROUTES"))
local pipeline = tonumber(os.getenv("PIPELINE")) or 1

if upload then
   wrk.method = "POST"
   wrk.body = string.rep("x", upload)
end

if os.getenv("FRESH") then
   wrk.headers["Connection"] = "close"
end

local turn = tonumber(os.getenv("START")) or 0

local function keyed()
   turn = turn % keys + 1
   return wrk.format(nil, nil, { Host = wrk.host, ["x-key"] = "client-" .. turn })
end

local function routed()
   return wrk.format(nil, "/service-" .. math.random(routes) .. "/x")
end

local one = keys and keyed or routes and routed
if one and pipeline == 1 then
   request = one
elseif one then
   request = function()
      local several = {}
      for index = 1, pipeline do
         several[index] = one()
      end
      return table.concat(several)
   end
end

done = function(summary, latency)
   local errors = summary.errors
   print("requests=" .. summary.requests)
   print("microseconds=" .. summary.duration)
   print("not_2xx=" .. errors.status)
   print("broken=" .. errors.connect + errors.read + errors.write + errors.timeout)
   print("p50=" .. latency:percentile(50))
   print("p99=" .. latency:percentile(99))
   print("p999=" .. latency:percentile(99.9))
end
