-- Looks at one token bucket, and gives tokens back to it if asked to.
--
-- KEYS   [1] the bucket.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more. [2] tokens to give back:
--        0 only looks, -1 gives all back. [3] burst: tokens in a full bucket, by the limit as it is now.
-- Reply  integers: 1 (-1: past the deadline, and nothing else but the time), Redis time in microseconds, then the bucket
--        before and after, three each: ticks until it is full, and E and D as in carry.lua, which is put before this; all
--        0 when it is not there, which is full.
--
-- Tokens are given back in the ticks that the bucket is counted in, whatever the limit is now: the tokens consumed are the
-- same in both, so no conversion is needed, and none that token_bucket.lua makes later is taken twice.
--
-- Never: writes when it only looks, makes a bucket more than full, reads a caller's clock for the arithmetic, leaves a key
-- without expiry, or puts a key into an error.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local before, emission, ticks = read(KEYS[1], now)
if not before then return redis.error_reply(FOREIGN) end
if not emission then return { 1, now, 0, 0, 0, 0, 0, 0 } end

local tokens = tonumber(ARGV[2])
if tokens == 0 then return { 1, now, before, emission, ticks, before, emission, ticks } end

-- What is over the burst was consumed under a larger one: the bucket is empty, and what is given back shows at once.
local after = math.min(before, tonumber(ARGV[3]) * emission)
if tokens > 0 then after = math.max(0, after - tokens * emission) end
if tokens < 0 or after == 0 then
  redis.call('DEL', KEYS[1])
  return { 1, now, before, emission, ticks, 0, 0, 0 }
end

write(KEYS[1], now, after, emission, ticks)
return { 1, now, before, emission, ticks, after, emission, ticks }
