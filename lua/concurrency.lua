-- Takes a node's claim of permits for its requests in flight, which replaces its claim before.
--
-- KEYS   the limits' keys, each once.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more. [2] the node, as a
--        number in text. [3] microseconds that a node holds its permits without claiming them again.
--        then four per key: permits in all, permits wanted, permits needed (requests hold them), and the number of this
--        claim among the node's own. All are integers.
-- Reply  integers: 1 (-1: past the deadline), Redis time in microseconds, then two per key: the permits that are the
--        node's now, and those that others hold.
--
-- A key is "node=permits:turn:until,node=…", until in microseconds. The node gets the permits it wants of those that
-- the others leave, and at least those it needs. A claim that a later one of the same node has overtaken changes
-- nothing.
--
-- Never: grants a permit twice that no request needs, reads a caller's clock, leaves a key without expiry, or puts a
-- key into an error.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local node, lease = ARGV[2], tonumber(ARGV[3])
local FOREIGN = "TOLLGATE a limit of requests in flight holds a value that is not Tollgate's: is another program using its keys?"

-- The permits of the others, their text and until when; the permits and the turn of the node itself. Nil: not a limit's
-- value.
local function read(key)
  local value = redis.call('GET', key)
  local others, parts, last, own_permits, own_turn = 0, {}, 0, 0, -1
  if not value then return others, parts, last, own_permits, own_turn end
  if not string.match(value, '^%d+=%d+:%d+:%d+[%d=:,]*$') then return nil end
  for name, permits, turn, till in string.gmatch(value, '(%d+)=(%d+):(%d+):(%d+)') do
    if name == node then
      if tonumber(till) > now then own_permits, own_turn = tonumber(permits), tonumber(turn) end
    elseif tonumber(till) > now then
      others = others + tonumber(permits)
      last = math.max(last, tonumber(till))
      parts[#parts + 1] = name .. '=' .. permits .. ':' .. turn .. ':' .. till
    end
  end
  return others, parts, last, own_permits, own_turn
end

local reply = { 1, now }
for i, key in ipairs(KEYS) do
  local arg = 4 * i
  local most, wanted = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1])
  local needed, turn = tonumber(ARGV[arg + 2]), tonumber(ARGV[arg + 3])
  local others, parts, last, permits, own_turn = read(key)
  if not others then return redis.error_reply(FOREIGN) end
  if turn >= own_turn then
    permits = math.max(needed, math.min(wanted, math.max(0, most - others)))
    if permits > 0 then
      last = math.max(last, now + lease)
      parts[#parts + 1] = string.format('%s=%.0f:%.0f:%.0f', node, permits, turn, now + lease)
    end
    if #parts > 0 then
      local ttl = math.ceil((last - now) / 1000) + 1
      redis.call('SET', key, table.concat(parts, ','), 'PX', string.format('%.0f', ttl))
    else
      redis.call('DEL', key)
    end
  end
  reply[2 * i + 1] = permits
  reply[2 * i + 2] = others
end
return reply
