-- The nodes of the fleet, and what each says of itself. Changes nothing.
--
-- KEYS   [1] the sorted set of nodes, scored by when each was last heard of, in milliseconds of Redis time,
--        [2] the hash of what each says of itself, by id; may be left out.
-- Reply  strings, three for each node, by id in byte order: its id, milliseconds since it was heard of, what it says.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

local heard_at, ids = {}, {}
local scored = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for place = 1, #scored, 2 do
  -- heartbeat.lua explains members.
  local id = string.match(scored[place], '^[^:]*')
  ids[#ids + 1] = id
  heard_at[id] = tonumber(scored[place + 1])
end
table.sort(ids)

local reply = {}
for _, id in ipairs(ids) do
  reply[#reply + 1] = id
  reply[#reply + 1] = string.format('%.0f', math.max(now - heard_at[id], 0))
  reply[#reply + 1] = KEYS[2] and redis.call('HGET', KEYS[2], id) or ''
end
return reply
