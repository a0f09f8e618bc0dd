-- Conversion of a token bucket that is stored by one limit and asked for by another. Put before token_bucket.lua and
-- behind values.lua, which says how a bucket is stored. conversion.rs has the same arithmetic.
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
-- takes for it, whichever is shorter.
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
  local whole = math.floor(backlog / old_emission)
  if whole * emission >= MAX_TICKS then return MAX_TICKS end
  local part, more = scale(backlog - whole * old_emission, emission, old_emission)
  if up and more then part = part + 1 end
  return math.min(MAX_TICKS, whole * emission + part)
end

-- Whether tokens come back sooner by the first limit: E / D < e / d, without leaving 2^53.
local function is_faster(emission, ticks, old_emission, old_ticks)
  local whole, old_whole = math.floor(emission / ticks), math.floor(old_emission / old_ticks)
  if whole ~= old_whole then return whole < old_whole end
  return (emission - whole * ticks) * old_ticks < (old_emission - old_whole * old_ticks) * ticks
end

-- A bucket as it is stored: the ticks that it lacks, the E and D that they count by, and whether the clock stepped back
-- since. A full one has no E and D. One that was a window lacks the tokens that are out, and counts by the E and D
-- given. Nil when the key holds something else.
local function read(key, now, emission, ticks)
  local value = get(key)
  if not value then return 0 end
  local stored, old_emission, old_ticks, stepped = read_bucket(value, now)
  if stored then return stored, old_emission, old_ticks, stepped end
  local used = read_window(value, now)
  if not used then return nil end
  return math.min(MAX_TICKS, used * emission), emission, ticks, true
end

-- A bucket as the limit of E and D reads it: the missing ticks of that limit, which may be more than its capacity; the
-- ticks to store if nothing is granted, with the E and D of those; and whether that differs from what is stored. Nil
-- when the key holds something else.
local function read_as(key, now, emission, ticks)
  local stored, old_emission, old_ticks, stepped = read(key, now, emission, ticks)
  if not stored then return nil end
  local is_own = old_emission == emission and old_ticks == ticks
  if stored == 0 or is_own then return stored, stored, emission, ticks, stepped end
  local own = convert(stored, old_emission, emission, true)
  if own < MAX_TICKS and is_faster(emission, ticks, old_emission, old_ticks) then
    return own, own, emission, ticks, true
  end
  return own, stored, old_emission, old_ticks, stepped
end

local function write(key, now, backlog, emission, ticks)
  local whole = math.floor(backlog / ticks)
  local frac = backlog - whole * ticks
  local value = string.format('%.0f:%.0f:%.0f:%.0f:%.0f', now + whole, frac, emission, ticks, backlog)
  -- One millisecond more than the time to full: Redis expires by a clock it read before this script read TIME.
  redis.call('SET', key, value, 'PX', string.format('%.0f', math.ceil(backlog / (ticks * 1000)) + 1))
end

