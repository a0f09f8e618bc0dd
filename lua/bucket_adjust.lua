-- Looks at one token bucket, and gives tokens back to it if asked to.
--
-- KEYS   [1] the bucket.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more. [2] tokens to give back:
--        0 only looks, -1 gives all back. [3] burst: tokens in a full bucket, by the limit as it is now.
-- Reply  integers: 1 (-1: past the deadline, and nothing else but the time), Redis time in microseconds, then the bucket
--        before and after, four each: tat, frac, E, D as in token_bucket.lua; all 0 when it is not there, which is full.
--
-- Tokens are given back in the ticks that the bucket is counted in, whatever the limit is now: the tokens consumed are the
-- same in both, so no conversion is needed, and none that token_bucket.lua makes later is taken twice.
--
-- Never: writes when it only looks, makes a bucket more than full, reads a caller's clock for the arithmetic, leaves a key
-- without expiry, or puts a key into an error.

if redis.replicate_commands then redis.replicate_commands() end

local MAX_TICKS = 4503599627370496

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local value = redis.call('GET', KEYS[1])
if not value then return { 1, now, 0, 0, 0, 0, 0, 0, 0, 0 } end

local tat, frac, emission, ticks = string.match(value, '^(%d+):(%d+):(%d+):(%d+)$')
tat, frac, emission, ticks = tonumber(tat), tonumber(frac), tonumber(emission), tonumber(ticks)
if not tat or emission < 1 or emission > MAX_TICKS or ticks < 1 or frac >= ticks then
  return redis.error_reply("TOLLGATE a bucket holds a value that is not Tollgate's: is another program using its keys?")
end

local tokens = tonumber(ARGV[2])
if tokens == 0 then return { 1, now, tat, frac, emission, ticks, tat, frac, emission, ticks } end

-- What is over the burst was consumed under a larger one: the bucket is empty, and what is given back shows at once.
local backlog = math.min(MAX_TICKS, math.max(0, (tat - now) * ticks + frac), tonumber(ARGV[3]) * emission)
if tokens > 0 then backlog = math.max(0, backlog - tokens * emission) end
if tokens < 0 or backlog == 0 then
  redis.call('DEL', KEYS[1])
  return { 1, now, tat, frac, emission, ticks, 0, 0, 0, 0 }
end

local whole = math.floor(backlog / ticks)
local rest = backlog - whole * ticks
local kept = string.format('%.0f:%.0f:%.0f:%.0f', now + whole, rest, emission, ticks)
-- One millisecond more than the time to full: Redis expires by a clock it read before this script read TIME.
redis.call('SET', KEYS[1], kept, 'PX', string.format('%.0f', math.ceil(backlog / (ticks * 1000)) + 1))
return { 1, now, tat, frac, emission, ticks, now + whole, rest, emission, ticks }
