-- What fixed and sliding windows have in common: it is put before their scripts, behind values.lua, which says how a window is
-- stored. They differ in their horizon: when a token that is taken now comes back.
--
-- A limit changes while windows exist: tokens that are out stay out until then, but no longer than one that is taken now, so
-- that neither a longer window of before nor a clock that stepped back locks anybody out. A token bucket of before has all
-- that it lacks out until the horizon.

-- Entries at most; beyond, the two that come back first become one.
local MAX_ENTRIES = 128

-- Puts out tokens until then.
local function put_out(untils, tokens, till, count)
  if count == 0 then return end
  local place = #untils + 1
  while place > 1 and untils[place - 1] >= till do place = place - 1 end
  if untils[place] == till then
    tokens[place] = tokens[place] + count
  else
    table.insert(untils, place, till)
    table.insert(tokens, place, count)
  end
  if #untils > MAX_ENTRIES then
    tokens[2] = tokens[2] + tokens[1]
    table.remove(untils, 1)
    table.remove(tokens, 1)
  end
end

-- The window at this key: tokens that are out, until when, and how many; and whether that is not what is stored. Nothing, when
-- the key holds something else.
local function look_out(key, now, horizon)
  local value = redis.call('GET', key)
  if not value then return 0, {}, {}, false end
  local used, untils, tokens = read_window(value, now)
  if not used then
    local missing, emission = read_bucket(value, now)
    if not missing then return nil end
    used, untils, tokens = math.ceil(missing / emission), {}, {}
    put_out(untils, tokens, horizon, used)
    return used, untils, tokens, true
  end
  local late = 0
  while #untils > 0 and untils[#untils] > horizon do
    late = late + table.remove(tokens)
    table.remove(untils)
  end
  put_out(untils, tokens, horizon, late)
  return used, untils, tokens, late > 0
end

local function write_out(key, now, untils, tokens)
  if #untils == 0 then
    redis.call('DEL', key)
    return
  end
  local parts = {}
  for i, till in ipairs(untils) do parts[i] = string.format('%.0f=%.0f', till, tokens[i]) end
  -- One millisecond more than the time to the last: Redis expires by a clock it read before this script read TIME.
  local ttl = math.ceil((untils[#untils] - now) / 1000) + 1
  redis.call('SET', key, table.concat(parts, ','), 'PX', string.format('%.0f', ttl))
end

-- Microseconds until so many tokens are back; of more than are out, until all are.
local function wait_for(missing, now, untils, tokens)
  if missing <= 0 or #untils == 0 then return 0 end
  local back = 0
  for i, till in ipairs(untils) do
    back = back + tokens[i]
    if back >= missing then return till - now end
  end
  return untils[#untils] - now
end

-- The functions of an algorithm, by its horizon at a time, which is nothing at a time that it was not told for.
local function window_by(horizon_at)
  return {
    open = function(key, now, arg, cost)
      local horizon = horizon_at(now, arg)
      if not horizon then return false end
      local used, untils, tokens, moved = look_out(key, now, horizon)
      if not used then return nil end
      local quota = tonumber(ARGV[arg])
      return { used, untils, tokens, horizon, quota, cost, moved }, math.floor(math.max(0, quota - used) / cost)
    end,

    close = function(key, now, state, granted, units)
      local used, untils, tokens, horizon, quota, cost, moved = unpack(state, 1, 7)
      if granted > 0 then
        put_out(untils, tokens, horizon, granted * cost)
        used = used + granted * cost
      end
      -- Also when it is only out for less long than it was: or it would be put off for as long as somebody asks.
      if granted > 0 or moved then write_out(key, now, untils, tokens) end
      local retry_after, reset_after = 0, 0
      if granted < units then retry_after = wait_for(used + cost - quota, now, untils, tokens) end
      if #untils > 0 then reset_after = untils[#untils] - now end
      return math.max(0, quota - used), retry_after, reset_after
    end,

    -- What is given back comes off what was taken at that time, as far as it is still out.
    adjust = function(key, now, arg, owed, back, taken_at)
      local horizon = horizon_at(now, arg)
      if not horizon then return false end
      local used, untils, tokens, moved = look_out(key, now, horizon)
      if not used then return nil end
      local before, from = used, horizon_at(taken_at, arg)
      for i, till in ipairs(untils) do
        if back > 0 and taken_at <= now and till == from then
          local gone = math.min(back, tokens[i])
          tokens[i], used = tokens[i] - gone, used - gone
          if tokens[i] == 0 then
            table.remove(untils, i)
            table.remove(tokens, i)
          end
          break
        end
      end
      local after = math.max(used, math.min(used + owed, math.max(tonumber(ARGV[arg]), owed)))
      put_out(untils, tokens, horizon, after - used)
      if moved or used ~= before or after ~= used then write_out(key, now, untils, tokens) end
      return true
    end,

    -- States are pairs: microseconds until tokens come back, and how many. What would come back last is given first.
    give = function(key, now, arg, given)
      local horizon = horizon_at(now, arg)
      if not horizon then return false end
      local used, untils, tokens = look_out(key, now, horizon)
      if not used then return nil end
      local function state()
        local list = {}
        for i, till in ipairs(untils) do list[2 * i - 1], list[2 * i] = till - now, tokens[i] end
        return list
      end
      local before = state()
      if given == 0 then return before, before end
      local extra = given < 0 and used or used - math.max(0, math.min(used, tonumber(ARGV[arg])) - given)
      while extra > 0 do
        local last = #untils
        local gone = math.min(extra, tokens[last])
        tokens[last], extra = tokens[last] - gone, extra - gone
        if tokens[last] == 0 then
          table.remove(untils)
          table.remove(tokens)
        end
      end
      write_out(key, now, untils, tokens)
      return before, state()
    end,
  }
end
