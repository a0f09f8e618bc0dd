-- Announces a node, or that it leaves, and lists the nodes that are not gone.
--
-- KEYS   [1] the sorted set of nodes, scored by when each was last heard of, in milliseconds of Redis time,
--        [2] the hash of what each says of itself, by id, and [3] since when there has always been a node, in
--        milliseconds of Redis time; both may be left out.
-- ARGV   [1] this node's id, [2] its member of the set, or nothing: it leaves, [3] milliseconds by which it is dated
--        back: it is heard of and decides alone all the same, [4] what it says of itself, [5] how many members to take
--        out, because their processes ended, then those; then two for each node to restore, if the set lost it: its
--        member, and milliseconds since it was heard of.
-- Reply  strings: 1 if this node was in the set before, or 0; then two for each node, by id in byte order: its member,
--        and milliseconds since it was heard of.
--
-- A member is "id:autonomy:connection": a node that was silent for autonomy milliseconds is gone. The connection is
-- "number@run", Redis's own number and its run_id: it ends only with the node's process. Empty: there is none.
--
-- Never: reads a caller's clock, or leaves a key behind when all nodes are gone.

if redis.replicate_commands then redis.replicate_commands() end

-- Milliseconds that nodes hold permits for requests in flight without claiming them again. All claims are made anew in
-- the time that follows as long a time without any node.
local PERMITS = 3000

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local id, own = ARGV[1], ARGV[2]

local ended, restored = {}, 6 + tonumber(ARGV[5])
for place = 6, restored - 1 do ended[ARGV[place]] = true end

-- The nodes by their ids, and the longest autonomy.
local nodes, ids, longest = {}, {}, 0

local function announce(member, heard_at, is_new)
  local name, autonomy = string.match(member, '^([^:]*):?(%d*)')
  autonomy = tonumber(autonomy) or 0
  if nodes[name] or now - heard_at > autonomy then return false end
  nodes[name], ids[#ids + 1], longest = { member, now - heard_at }, name, math.max(longest, autonomy)
  if is_new then redis.call('ZADD', KEYS[1], string.format('%.0f', heard_at), member) end
  return true
end

local was_known = '0'
local scored = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
if own ~= '' then announce(own, now - tonumber(ARGV[3]), true) end
for place = 1, #scored, 2 do
  local member, heard_at = scored[place], tonumber(scored[place + 1])
  local is_own = string.sub(member, 1, #id + 1) == id .. ':'
  if is_own then was_known = '1' end
  -- Redis's clock stepped back: a node last heard of in its future was heard of just now. Otherwise a dead node would
  -- live until then.
  local is_kept = not is_own and not ended[member] and announce(member, math.min(heard_at, now), heard_at > now)
  if not is_kept and member ~= own then redis.call('ZREM', KEYS[1], member) end
end
for place = restored, #ARGV, 2 do announce(ARGV[place], now - tonumber(ARGV[place + 1]), true) end
if longest > 0 then redis.call('PEXPIRE', KEYS[1], longest) end

-- Ranks follow the ids, which stay, not the scores.
table.sort(ids)
local reply = { was_known }
for _, name in ipairs(ids) do
  reply[#reply + 1] = nodes[name][1]
  reply[#reply + 1] = string.format('%.0f', nodes[name][2])
end

if KEYS[3] and own ~= '' then
  redis.call('SET', KEYS[3], string.format('%.0f', now), 'NX')
  redis.call('PEXPIRE', KEYS[3], PERMITS)
end

if KEYS[2] then
  if own ~= '' then redis.call('HSET', KEYS[2], id, ARGV[4]) end
  if longest > 0 then redis.call('PEXPIRE', KEYS[2], longest) end
  if redis.call('HLEN', KEYS[2]) > #ids then
    for _, name in ipairs(redis.call('HKEYS', KEYS[2])) do
      if not nodes[name] then redis.call('HDEL', KEYS[2], name) end
    end
  end
end
return reply
