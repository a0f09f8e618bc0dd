-- Tokens that flow back one by one. Put behind values.lua. token_bucket.rs and the files below it have the same
-- arithmetic.
--
-- ARGV   emission E, capacity C, ticks per microsecond D, reserve R.
--        A tick is 1/D microseconds, a token takes E ticks to come back, an empty bucket C ticks to fill, of which R
--        are not to be used (see `TokenBucket::leased`). R < C < 2^52.
-- Value  tat, frac, E, D, M: the bucket is full again at tat microseconds plus frac ticks; when it was written, M ticks
--        were missing.
--
-- A limit changes while buckets exist, and for a while, or with plans for good, nodes ask for the same bucket by
-- different versions of it. Admitted in any time t is at most the largest burst + the largest rate * t of these
-- versions, because:
-- - Consumed tokens count. They flow off at the rate that the bucket is stored by, which is that of a version; nothing
--   else lowers them. Conversion keeps them, rounded up, whatever the burst of the limit that reads them.
-- - A grant is given only where they and its cost fit its version's burst. So after a grant they are at most the
--   largest burst, and what was granted since they were x is at most the largest burst - x + what flowed off.
-- No client is locked out, because a bucket is stored by the version that granted last, or else by the fastest that
-- asked since: a larger consumption flows off in the time that the old limit would have taken, or that the new rate
-- takes for it, whichever is shorter. Consumption beyond the capacity, by a larger version of the limit, leaves nothing
-- to grant; the times in the reply are those in which it flows off as the bucket is stored.
--
-- A refund never returns ticks that flowed in since they were charged: the bucket may have been full before and had no
-- room for them. A bucket that is stored by another version gets no refund, since less may be left of the charge there.
-- (A bucket that was stored so for a moment, and no longer is, looks like any other.)
--
-- M shows that a clock stepped back: no time passes for the bucket until the clock is where it was, or it is written
-- again.

-- floor(a * b / c) for a < c <= 2^52, and whether something is left, without leaving 2^53: long multiplication.
local function scale(a, b, c)
  local quotient, rest, bit = 0, 0, 1
  while bit * 2 <= b do bit = bit * 2 end
  while bit >= 1 do
    quotient, rest = quotient * 2, rest * 2
    if rest >= c then quotient, rest = quotient + 1, rest - c end
    if b >= bit then
      b, rest = b - bit, rest + a
      if rest >= c then quotient, rest = quotient + 1, rest - c end
    end
    bit = bit / 2
  end
  return quotient, rest > 0
end

-- The same tokens in ticks of another emission, rounded up or down; at most MAX_TICKS.
local function convert(backlog, old_emission, emission, up)
  local whole = floor(backlog / old_emission)
  if whole * emission >= MAX_TICKS then return MAX_TICKS end
  local part, more = scale(backlog - whole * old_emission, emission, old_emission)
  if up and more then part = part + 1 end
  return min(MAX_TICKS, whole * emission + part)
end

-- Whether tokens come back sooner by the first limit: E / D < e / d, without leaving 2^53.
local function is_faster(emission, ticks, old_emission, old_ticks)
  local whole, old_whole = floor(emission / ticks), floor(old_emission / old_ticks)
  if whole ~= old_whole then return whole < old_whole end
  return (emission - whole * ticks) * old_ticks < (old_emission - old_whole * old_ticks) * ticks
end

-- A bucket as it is stored: the ticks that it lacks, the E and D that they count by, and whether the clock stepped back
-- since. A full one has no E and D. False: the key holds the value of another algorithm. Nil: a foreign one.
local function read_bucket(key, now)
  local value = get(key)
  if not value then return 0 end
  local tat, frac, emission, ticks, most = bucket_of(value)
  if not tat then
    local is_out = is_out_by_another(value, now)
    if is_out == nil then return nil end
    if is_out then return false end
    return 0
  end
  local left = max(0, (tat - now) * ticks + frac)
  return min(left, most), emission, ticks, left > most
end

-- A bucket as the limit of E and D reads it: the missing ticks of that limit, which may be more than its capacity; the
-- ticks to store if nothing is granted, with the E and D of those; and whether that differs from what is stored. False
-- and nil as of read_bucket.
local function read_as(key, now, emission, ticks)
  local stored, old_emission, old_ticks, stepped = read_bucket(key, now)
  if not stored then return stored end
  local is_own = old_emission == emission and old_ticks == ticks
  if stored == 0 or is_own then return stored, stored, emission, ticks, stepped end
  local own = convert(stored, old_emission, emission, true)
  if own < MAX_TICKS and is_faster(emission, ticks, old_emission, old_ticks) then
    return own, own, emission, ticks, true
  end
  return own, stored, old_emission, old_ticks, stepped
end

local function write(key, now, backlog, emission, ticks)
  local whole = floor(backlog / ticks)
  local value = struct.pack(BUCKET, 'b', now + whole, backlog - whole * ticks, emission, ticks, backlog)
  -- One millisecond more than the time to full: Redis expires by a clock it read before this script read TIME.
  redis.call('SET', key, value, 'PX', string.format('%.0f', ceil(backlog / (ticks * 1000)) + 1))
end

algorithms.b = {
  limit = function(emission, capacity, ticks, reserve)
    return { emission = emission, capacity = capacity, ticks = ticks, usable = capacity - reserve }
  end,

  open = function(key, now, limit, charge)
    local emission, ticks = limit.emission, limit.ticks
    local backlog, stored, stored_emission, stored_ticks, changed = read_as(key, now, emission, ticks)
    if backlog == nil then return nil end
    if backlog == false then backlog, stored, stored_emission, stored_ticks = 0, 0, emission, ticks end
    local state = { limit, charge, backlog, stored, stored_emission, stored_ticks, changed }
    return state, floor(max(0, limit.usable - backlog) / charge)
  end,

  close = function(key, now, state, granted, units)
    local limit, charge, backlog, stored, stored_emission, stored_ticks, changed = unpack(state, 1, 7)
    local emission, ticks, usable = limit.emission, limit.ticks, limit.usable
    if granted > 0 then
      backlog = backlog + granted * charge
      stored, stored_emission, stored_ticks, changed = backlog, emission, ticks, true
    end
    if changed then write(key, now, stored, stored_emission, stored_ticks) end
    local missing, retry_after = backlog + charge - usable, 0
    if stored_emission ~= emission or stored_ticks ~= ticks then
      missing = stored - convert(max(0, usable - charge), emission, stored_emission, false)
    end
    if granted < units then retry_after = max(0, ceil(missing / stored_ticks)) end
    return max(0, floor((usable - backlog) / emission)), retry_after, ceil(stored / stored_ticks)
  end,

  -- Tokens that flowed in since a charge was admitted pay for it as far as nothing else had use for them: paid_us tells.
  adjust = function(key, now, limit, charge, _, refund, taken_at, paid_us)
    local emission, ticks = limit.emission, limit.ticks
    local backlog, before, stored_emission, stored_ticks, changed = read_as(key, now, emission, ticks)
    if backlog == nil then return nil end
    if backlog == false then return false end
    local after = before
    if stored_emission ~= emission or stored_ticks ~= ticks then
      charge = convert(charge, emission, stored_emission, true)
    elseif not changed and taken_at <= now then
      after = after - min(after, max(0, refund - (now - taken_at) * ticks))
    end
    if charge > 0 then charge = max(0, charge - paid_us(after == 0) * stored_ticks) end
    after = min(after + charge, MAX_TICKS)
    if after == 0 then
      if before > 0 then redis.call('DEL', key) end
    elseif after ~= before then
      write(key, now, after, stored_emission, stored_ticks)
    end
    return true
  end,

  -- States are the ticks until the bucket is full, and E and D as it is stored; a full one has none. Tokens are granted
  -- in the ticks that the bucket is stored by, whatever the limit is now: the tokens consumed are the same in both, so
  -- no conversion is needed, and none that is made later is taken twice.
  grant = function(key, now, limit, tokens)
    local before, stored_emission, stored_ticks = read_bucket(key, now)
    if before == nil then return nil end
    if not stored_emission then return {}, {} end
    local states = { before, stored_emission, stored_ticks }
    if tokens == 0 then return states, states end
    -- Consumption over the burst was under a larger one: the bucket is empty, and a grant shows at once.
    local after = min(before, floor(limit.capacity / limit.emission) * stored_emission)
    if tokens > 0 then after = max(0, after - tokens * stored_emission) end
    if tokens < 0 or after == 0 then
      redis.call('DEL', key)
      return states, {}
    end
    write(key, now, after, stored_emission, stored_ticks)
    return states, { after, stored_emission, stored_ticks }
  end,
}
