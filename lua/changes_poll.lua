-- Reads the changes that operators made since this node last polled.
--
-- KEYS   [1] the stream of changes.
-- ARGV   [1] the id up to which it was read, empty at first, [2] changes to read at most.
-- Reply  strings: the id up to which it is read now, then two per change: the bucket, and the microseconds until it is
--        full again at most. At first, all changes that are kept: a node may have served requests before it could poll.
--
-- Never: writes.

if redis.replicate_commands then redis.replicate_commands() end

local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not last then return { '0-0' } end
local from = ARGV[1]

-- A stream that ends before the id that this node has is another one: Redis forgot the first, and its clock is behind.
-- It is read from its start, as at first.
local function parse(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local last_ms, last_seq = parse(last[1])
local from_ms, from_seq = parse(from)
if not from_ms or last_ms < from_ms or (last_ms == from_ms and last_seq < from_seq) then from = '0-0' end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local reply = { from }
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '(' .. from, '+', 'COUNT', ARGV[2])) do
  reply[1] = entry[1]
  reply[#reply + 1] = entry[2][2]
  reply[#reply + 1] = string.format('%.0f', math.max(0, tonumber(entry[2][4]) - now))
end
return reply
