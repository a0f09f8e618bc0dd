-- Takes a node's claim of permits for its requests in flight, which replaces its claim before.
--
-- KEYS   the limits' keys, each once; then, if ARGV says so, since when there has always been a node in the fleet
--        (heartbeat.lua).
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more. [2] the node, as a
--        number in text. [3] microseconds that a node holds its permits without claiming them again. [4] microseconds
--        that a demand counts. [5] microseconds after which permits that cannot be divided go to the next nodes.
--        [6] 1: the last key is that time. 0: there is no such key.
--        then seven per key: permits in all, permits wanted, permits that the node could use, permits that it keeps at
--        least, permits needed (requests hold them), the most permits of one request, and the number of this claim
--        among the node's own. All are integers.
-- Reply  integers: 1 (-1: past the deadline), Redis time in microseconds, then three per key: the permits that are the
--        node's now, those that others hold, and the node's fair share.
--
-- A key is "node=permits:turn:until:demand,node=…", until in microseconds. The demand is left out where it is not more
-- than the permits; older versions of this script write none and read past it. The node gets the permits it wants of
-- those that the others leave, and at least those it needs. While the nodes could use more than there is, it gets nothing
-- beyond its share. Where Redis was without nodes for a time, or has lost its data, it gets nothing beyond what it keeps
-- until all have claimed again. A claim that a later one of the same node has overtaken changes nothing.
--
-- Never: grants a permit twice that no request needs, reads a caller's clock, leaves a key without expiry, or puts a
-- key into an error.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local node, lease, remembered, rotation = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local FOREIGN = "TOLLGATE a limit of requests in flight holds a value that is not Tollgate's: is another program using its keys?"

-- The other nodes with their demands, their permits together and until when; the permits and the turn of the node
-- itself. Nil: not a limit's value.
local function read(key)
  local value = redis.call('GET', key)
  local others, permits_of_others, last, own_permits, own_turn = {}, 0, 0, 0, -1
  if not value then return others, permits_of_others, last, own_permits, own_turn end
  if not string.match(value, '^%d+=%d+:%d+:%d+[%d=:,]*$') then return nil end
  for name, permits, turn, till, demand in string.gmatch(value, '(%d+)=(%d+):(%d+):(%d+):?(%d*)') do
    -- Redis's clock may have stepped back since: nobody holds permits for longer than a lease.
    local held, ends = tonumber(permits), math.min(tonumber(till), now + lease)
    local usable = held
    if demand ~= '' and ends + remembered > now + lease then usable = math.max(held, tonumber(demand)) end
    if ends > now and usable > 0 then
      if name == node then
        own_permits, own_turn = held, tonumber(turn)
      else
        permits_of_others = permits_of_others + held
        last = math.max(last, ends)
        local text = name .. '=' .. permits .. ':' .. turn .. ':' .. string.format('%.0f', ends)
        if usable > held then text = text .. ':' .. demand end
        others[#others + 1] = { name = name, demand = usable, text = text }
      end
    end
  end
  return others, permits_of_others, last, own_permits, own_turn
end

-- Whether a node's number is smaller than that of this node.
local function before(name)
  return #name < #node or #name == #node and name < node
end

-- The share of this node: all permits if that is enough for everyone. Otherwise nodes that want little get it, and the
-- rest is divided evenly among the others, in units of the largest request. The units that remain go to a few of those,
-- in turns.
local function fair_share(others, most, demand, largest_cost)
  local wanted = demand
  for _, other in ipairs(others) do wanted = wanted + other.demand end
  if wanted <= most then return most end
  local unit = math.max(1, math.min(largest_cost, most))
  local own = math.ceil(demand / unit)
  local demands = { own }
  for _, other in ipairs(others) do demands[#demands + 1] = math.ceil(other.demand / unit) end
  table.sort(demands)
  local left, contenders = math.floor(most / unit), #demands
  for _, one in ipairs(demands) do
    if one > math.floor(left / contenders) then break end
    left, contenders = left - one, contenders - 1
    if contenders == 0 then return most end
  end
  local level, remaining, rank = math.floor(left / contenders), left % contenders, 0
  for _, other in ipairs(others) do
    if before(other.name) and math.ceil(other.demand / unit) > level then rank = rank + 1 end
  end
  if own > level and (rank + math.floor(now / rotation)) % contenders < remaining then level = level + 1 end
  return level * unit
end

local limits, are_claims_missing = #KEYS - tonumber(ARGV[6]), false
if limits < #KEYS then
  local since = tonumber(redis.call('GET', KEYS[#KEYS]) or '')
  -- A time in the future was written before Redis's clock stepped back.
  are_claims_missing = not since or (since * 1000 <= now and since * 1000 + lease > now)
end

local reply = { 1, now }
for i = 1, limits do
  local key, arg = KEYS[i], 7 * i
  local most, wanted, demand = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local kept, needed = tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4])
  local largest_cost, turn = tonumber(ARGV[arg + 5]), tonumber(ARGV[arg + 6])
  local others, permits_of_others, last, permits, own_turn = read(key)
  if not others then return redis.error_reply(FOREIGN) end
  if are_claims_missing then wanted = math.min(wanted, kept) end
  local share = most
  if turn >= own_turn then
    share = fair_share(others, most, demand, largest_cost)
    permits = math.min(wanted, math.max(0, most - permits_of_others), math.max(kept, share))
    permits = math.max(needed, permits)
    local parts = {}
    for _, other in ipairs(others) do parts[#parts + 1] = other.text end
    if permits > 0 or demand > 0 then
      last = math.max(last, now + lease)
      local own = string.format('%s=%.0f:%.0f:%.0f', node, permits, turn, now + lease)
      if demand > permits then own = own .. string.format(':%.0f', demand) end
      parts[#parts + 1] = own
    end
    if #parts > 0 then
      local ttl = math.ceil((last - now) / 1000) + 1
      redis.call('SET', key, table.concat(parts, ','), 'PX', string.format('%.0f', ttl))
    else
      redis.call('DEL', key)
    end
  end
  reply[3 * i] = permits
  reply[3 * i + 1] = permits_of_others
  reply[3 * i + 2] = share
end
return reply
