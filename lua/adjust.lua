-- Corrects token buckets for what happened outside of them: charges what was admitted while Redis was away, gives back what
-- was taken ahead and not spent.
--
-- KEYS   the buckets.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more.
--        then six per key: emission E, capacity C, ticks per microsecond D, as for token_bucket.lua, ticks owed, ticks given
--        back, and the Redis time in microseconds at which the latter had been taken.
-- Reply  integers: 1 (-1: past the deadline), Redis time in microseconds.
--
-- Never: gives back what flowed in since it was taken, since the bucket may have been full before and had no room for it;
-- gives back to a bucket of another limit; owes more than a full bucket; and nothing that token_bucket.lua never does.

if redis.replicate_commands then redis.replicate_commands() end

local MAX_TICKS = 4503599627370496

-- ceil(a * b / c) for a < c <= 2^52, without leaving 2^53: long multiplication with the remainder kept.
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
  if rest > 0 then quotient = quotient + 1 end
  return quotient
end

-- The same tokens consumed, in ticks of the new emission; at most the capacity.
local function convert(backlog, old_emission, emission, capacity)
  local whole = math.floor(backlog / old_emission)
  if whole * emission >= capacity then return capacity end
  return math.min(capacity, whole * emission + scale(backlog - whole * old_emission, emission, old_emission))
end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

for i, key in ipairs(KEYS) do
  local arg = 6 * i - 4
  local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local owed, back, taken_at = tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4]), tonumber(ARGV[arg + 5])
  local before, same = 0, true
  local value = redis.call('GET', key)
  if value then
    local tat, frac, old_emission, old_ticks = string.match(value, '^(%d+):(%d+):(%d+):(%d+)$')
    tat, frac, old_emission, old_ticks = tonumber(tat), tonumber(frac), tonumber(old_emission), tonumber(old_ticks)
    if not tat or old_emission < 1 or old_emission > MAX_TICKS or old_ticks < 1 or frac >= old_ticks then
      return redis.error_reply("TOLLGATE a bucket holds a value that is not Tollgate's: is another program using its keys?")
    end
    before = math.min(MAX_TICKS, math.max(0, (tat - now) * old_ticks + frac))
    if old_emission ~= emission or old_ticks ~= ticks then
      before, same = convert(before, old_emission, emission, capacity), false
    elseif before > capacity then
      before, same = capacity, false
    end
  end
  local backlog = before
  if same and taken_at <= now then backlog = backlog - math.min(backlog, math.max(0, back - (now - taken_at) * ticks)) end
  backlog = math.min(capacity, backlog + owed)
  if backlog == 0 then
    if before > 0 then redis.call('DEL', key) end
  elseif backlog ~= before then
    local whole = math.floor(backlog / ticks)
    local stored = string.format('%.0f:%.0f:%s:%s', now + whole, backlog - whole * ticks, ARGV[arg], ARGV[arg + 2])
    -- One millisecond more than the time to full: Redis expires by a clock it read before this script read TIME.
    redis.call('SET', key, stored, 'PX', string.format('%.0f', math.ceil(backlog / (ticks * 1000)) + 1))
  end
end
return { 1, now }
