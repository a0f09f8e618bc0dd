-- Takes tokens from one or more token buckets at once, all or nothing.
--
-- KEYS   the buckets, each once.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be charged any more.
--        [2] units: how many equal requests ask.
--        then five per key: emission E, capacity C, ticks per microsecond D, cost in tokens, reserve R.
--        A tick is 1/D microseconds, a token takes E ticks to come back, an empty bucket C ticks to fill, of which R are
--        not to be used (see `Shape::leased`). All are integers; R < C < 2^52.
-- Reply  integers: units granted (-1: past the deadline), Redis time in microseconds, then three per key: whole tokens left,
--        microseconds until one more unit fits this bucket (0 when all units were granted), microseconds until it is full.
--
-- The smallest number of units that any bucket has room for is charged to every bucket. A bucket is one string,
-- "tat:frac:E:D": it is full again at tat microseconds plus frac ticks. E and D tell what its ticks are worth in tokens,
-- so that a changed limit carries the tokens consumed over. A bucket that is not there is full.
--
-- Never: reads a caller's clock for the arithmetic, writes on a denial (but to repair, once, a bucket of another limit or
-- one from a future that a stepped clock took back), leaves a key without expiry, leaves the integers below 2^53, or puts
-- a key into an error.

-- Redis before 7 can be configured to replicate scripts by their text, which a script that reads the time must opt out of.
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

local units = tonumber(ARGV[2])
local granted = units
local backlogs, repairs = {}, {}

for i, key in ipairs(KEYS) do
  local arg = 5 * i - 2
  local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local backlog = 0
  local value = redis.call('GET', key)
  if value then
    local tat, frac, old_emission, old_ticks = string.match(value, '^(%d+):(%d+):(%d+):(%d+)$')
    tat, frac, old_emission, old_ticks = tonumber(tat), tonumber(frac), tonumber(old_emission), tonumber(old_ticks)
    if not tat or old_emission < 1 or old_emission > MAX_TICKS or old_ticks < 1 or frac >= old_ticks then
      return redis.error_reply("TOLLGATE a bucket holds a value that is not Tollgate's: is another program using its keys?")
    end
    backlog = math.min(MAX_TICKS, math.max(0, (tat - now) * old_ticks + frac))
    if old_emission ~= emission or old_ticks ~= ticks then
      backlog = convert(backlog, old_emission, emission, capacity)
      repairs[i] = backlog > 0
    elseif backlog > capacity then
      backlog = capacity
      repairs[i] = true
    end
  end
  backlogs[i] = backlog
  local room = math.max(0, capacity - tonumber(ARGV[arg + 4]) - backlog)
  granted = math.min(granted, math.floor(room / (emission * tonumber(ARGV[arg + 3]))))
end

local reply = { granted, now }
for i, key in ipairs(KEYS) do
  local arg = 5 * i - 2
  local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local charge, usable = emission * tonumber(ARGV[arg + 3]), capacity - tonumber(ARGV[arg + 4])
  local backlog = backlogs[i] + granted * charge
  if granted > 0 or repairs[i] then
    local whole = math.floor(backlog / ticks)
    local value = string.format('%.0f:%.0f:%s:%s', now + whole, backlog - whole * ticks, ARGV[arg], ARGV[arg + 2])
    -- One millisecond more than the time to full: Redis expires by a clock it read before this script read TIME.
    redis.call('SET', key, value, 'PX', string.format('%.0f', math.ceil(backlog / (ticks * 1000)) + 1))
  end
  local retry_after = 0
  if granted < units then retry_after = math.max(0, math.ceil((backlog + charge - usable) / ticks)) end
  reply[3 * i] = math.max(0, math.floor((usable - backlog) / emission))
  reply[3 * i + 1] = retry_after
  reply[3 * i + 2] = math.ceil(backlog / ticks)
end
return reply
