-- Announces a node, or that it leaves, and counts the nodes that are alive.
--
-- KEYS   [1] the sorted set of nodes, scored by when each was last heard of, in milliseconds of Redis time,
--        [2] the hash of what each says of itself, by id; may be left out.
-- ARGV   [1] this node's id, [2] milliseconds after which a silent node counts as gone (0: this one leaves),
--        [3] milliseconds after which it counts as silent, [4] 1: this node is heard of and decides alone all the same,
--        so it counts as silent for the others, [5] what this node says of itself.
-- Reply  integers: nodes that are not gone, this one's rank among their ids in byte order, from 0, then the ranks of the
--        silent ones.
--
-- Never: reads a caller's clock, or leaves a key behind when all nodes are gone.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ttl = tonumber(ARGV[2])
local score = string.format('%.0f', now)
local own_score = ARGV[4] == '1' and string.format('%.0f', now - tonumber(ARGV[3])) or score

if ttl == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  if KEYS[2] then redis.call('HDEL', KEYS[2], ARGV[1]) end
  return { redis.call('ZCARD', KEYS[1]), 0 }
end

redis.call('ZADD', KEYS[1], own_score, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - ttl))
-- Redis's clock stepped back: a node last heard of in its future was heard of just now. Otherwise a dead node would
-- live until then.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. score, '+inf')) do
  redis.call('ZADD', KEYS[1], score, id)
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])

local silent = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now - tonumber(ARGV[3])))) do
  silent[id] = id ~= ARGV[1]
end

-- Ranks follow the ids, which stay, not the scores.
local ids = redis.call('ZRANGE', KEYS[1], 0, -1)
table.sort(ids)
local reply = { #ids, 0 }
for place, id in ipairs(ids) do
  if id == ARGV[1] then reply[2] = place - 1 end
  if silent[id] then reply[#reply + 1] = place - 1 end
end

if KEYS[2] then
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[5])
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  if redis.call('HLEN', KEYS[2]) > #ids then
    for _, id in ipairs(redis.call('HKEYS', KEYS[2])) do
      if not redis.call('ZSCORE', KEYS[1], id) then redis.call('HDEL', KEYS[2], id) end
    end
  end
end
return reply
