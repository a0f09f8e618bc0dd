-- Publishes to every node that an operator granted tokens to a bucket.
--
-- KEYS   [1] the stream of changes.
-- ARGV   [1] the bucket, without prefix, [2] microseconds until it is full again at most, [3] milliseconds that nodes
--        have to poll it.
-- Reply  integers: 1.
--
-- Never: reads a caller's clock, or leaves the stream behind when no node needs it any more.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local oldest = string.format('%.0f-0', math.max(0, math.floor(now / 1000) - tonumber(ARGV[3])))
redis.call('XADD', KEYS[1], 'MINID', oldest, '*',
  'bucket', ARGV[1], 'full_at', string.format('%.0f', now + tonumber(ARGV[2])))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return { 1 }
