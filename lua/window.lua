-- The common part of fixed and sliding windows: put before their scripts and behind values.lua. They differ in when a
-- token that is taken now expires, and so comes back. window.rs has the same arithmetic.
--
-- Value  "until=tokens,until=tokens": tokens and when they expire, in microseconds, in the order in which they do.
--
-- A limit changes while windows exist: tokens that are out stay out until they expire, but no longer than one that is
-- taken now, so neither an earlier, longer window nor a clock that stepped back locks a client out. Where the clock may
-- have stepped back from the next window, and tokens of that are out, it goes on.

-- Entries at most; beyond, the two that expire first become one.
local MAX_ENTRIES = 128

-- Adds tokens that expire then.
local function add(untils, tokens, till, count)
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

-- The window at this key: tokens that are out, until when, and how many; whether that differs from what is stored; and
-- when a token that is taken now expires. False: the key holds the value of another algorithm. Nil: a foreign one.
-- `next_expiry`: the end of the next window, if the clock may have been there and stepped back.
local function read_entries(key, now, expires_at, next_expiry)
  local value = get(key)
  if not value then return 0, {}, {}, false, expires_at end
  if not string.match(value, WINDOW) then
    local is_out = is_out_by_another(value, now)
    if is_out == nil then return nil end
    if is_out then return false end
    return 0, {}, {}, false, expires_at
  end
  local used, untils, tokens, before = 0, {}, {}, 0
  for till, count in string.gmatch(value, '(%d+)=(%d+)') do
    till, count = tonumber(till), tonumber(count)
    if till <= before or used + count > MAX_TICKS then return nil end
    before = till
    if till > now then
      used, untils[#untils + 1], tokens[#tokens + 1] = used + count, till, count
    end
  end
  local last = untils[#untils]
  if last and last > expires_at and last <= next_expiry then expires_at = last end
  local late = 0
  while #untils > 0 and untils[#untils] > expires_at do
    late = late + table.remove(tokens)
    table.remove(untils)
  end
  add(untils, tokens, expires_at, late)
  return used, untils, tokens, late > 0, expires_at
end

-- Stores a window, for as long behind its end as the clock may step back.
local function write_entries(key, now, untils, tokens, step_back)
  if #untils == 0 then
    redis.call('DEL', key)
    return
  end
  local parts = {}
  for i, till in ipairs(untils) do parts[i] = string.format('%.0f=%.0f', till, tokens[i]) end
  -- One millisecond more than the time to the last: Redis expires by a clock it read before this script read TIME.
  local ttl = ceil((untils[#untils] + step_back - now) / 1000) + 1
  redis.call('SET', key, table.concat(parts, ','), 'PX', string.format('%.0f', ttl))
end

-- Microseconds until so many tokens are back; if that is more than are out, until all are.
local function wait_for(missing, now, untils, tokens)
  if missing <= 0 or #untils == 0 then return 0 end
  local back = 0
  for i, till in ipairs(untils) do
    back = back + tokens[i]
    if back >= missing then return till - now end
  end
  return untils[#untils] - now
end

-- The functions of an algorithm. `expiry_at`, given the three numbers behind the quota, says when a token that is taken at
-- a time expires, the end of the next window where the clock may have stepped back from there, and how far it may step
-- back; nil at a time that the caller sent no window for.
local function window_by(expiry_at)
  return {
    limit = function(quota, ...)
      return { quota = quota, ... }
    end,

    open = function(key, now, limit, cost)
      local expires_at, next_expiry, step_back = expiry_at(now, limit)
      if not expires_at then return false end
      local used, untils, tokens, changed, expiry = read_entries(key, now, expires_at, next_expiry)
      if used == nil then return nil end
      if used == false then used, untils, tokens, expiry = 0, {}, {}, expires_at end
      local state = { limit, used, untils, tokens, expiry, cost, changed, step_back }
      return state, floor(max(0, limit.quota - used) / cost)
    end,

    close = function(key, now, state, granted)
      local limit, used, untils, tokens, expires_at, cost, changed, step_back = unpack(state, 1, 8)
      local quota = limit.quota
      if granted > 0 then
        add(untils, tokens, expires_at, granted * cost)
        used = used + granted * cost
      end
      -- Also when tokens only expire earlier than before: otherwise that would be put off for as long as requests come.
      if granted > 0 or changed then write_entries(key, now, untils, tokens, step_back) end
      -- Also of the last unit that fits: nothing else tells when the next one does.
      local retry_after, reset_after = wait_for(used + cost - quota, now, untils, tokens), 0
      if #untils > 0 then reset_after = untils[#untils] - now end
      -- Nothing is out, and nothing may be taken: all of the quota is held back.
      if used == 0 and cost > quota then retry_after = expires_at - now end
      return max(0, quota - used), retry_after, reset_after
    end,

    -- A charge goes to the window that it was admitted in, if that is still out. A refund lowers the tokens taken at its
    -- time, as far as they are still out.
    adjust = function(key, now, limit, charge, age, refund, taken_at)
      local expires_at, next_expiry, step_back = expiry_at(now, limit)
      if not expires_at then return false end
      local used, untils, tokens, changed, expiry = read_entries(key, now, expires_at, next_expiry)
      if used == nil then return nil end
      if used == false then return false end
      local before, from = used, expiry_at(taken_at, limit)
      for i, till in ipairs(untils) do
        if refund > 0 and taken_at <= now and till == from then
          local gone = min(refund, tokens[i])
          tokens[i], used = tokens[i] - gone, used - gone
          if tokens[i] == 0 then
            table.remove(untils, i)
            table.remove(tokens, i)
          end
          break
        end
      end
      -- A time before the windows that the caller sent has none that is still out.
      local till = expiry_at(now - age, limit) or now
      if till >= expires_at then till = expiry end
      local owed = min(charge, MAX_TICKS - used)
      if till > now then add(untils, tokens, till, owed) else owed = 0 end
      if changed or used ~= before or owed > 0 then write_entries(key, now, untils, tokens, step_back) end
      return true
    end,

    -- States are pairs: microseconds until tokens expire, and how many. Tokens that would expire last are granted
    -- first.
    grant = function(key, now, limit, granted)
      local expires_at, next_expiry, step_back = expiry_at(now, limit)
      if not expires_at then return false end
      local used, untils, tokens = read_entries(key, now, expires_at, next_expiry)
      if used == nil then return nil end
      if used == false then return {}, {} end
      local function state()
        local list = {}
        for i, till in ipairs(untils) do list[2 * i - 1], list[2 * i] = till - now, tokens[i] end
        return list
      end
      local before = state()
      if granted == 0 then return before, before end
      local extra = granted < 0 and used or used - max(0, min(used, limit.quota) - granted)
      while extra > 0 do
        local last = #untils
        local gone = min(extra, tokens[last])
        tokens[last], extra = tokens[last] - gone, extra - gone
        if tokens[last] == 0 then
          table.remove(untils)
          table.remove(tokens)
        end
      end
      write_entries(key, now, untils, tokens, step_back)
      return before, state()
    end,
  }
end
