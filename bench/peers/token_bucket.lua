-- The token bucket that peers without one of their own ask Redis for.
-- KEYS[1]: the bucket. ARGV: tokens, microseconds they take to flow in, burst. Reply: granted (0 or 1), microseconds to wait.
-- Redis's clock. The value is the time at which the bucket is full again. A denial writes nothing.
local tokens, period, burst = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local each = period / tokens
local full_at = math.max(tonumber(redis.call("GET", KEYS[1]) or now), now) + each
local wait = full_at - now - each * burst
if wait > 0 then
   return { 0, math.ceil(wait) }
end
redis.call("SET", KEYS[1], string.format("%.0f", full_at), "PX", math.ceil((full_at - now) / 1000) + 1)
return { 1, 0 }
