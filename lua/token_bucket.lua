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
-- The smallest number of units that any bucket has room for is charged to every bucket. See carry.lua, which is put before
-- this, for what a bucket is and for limits that change. What was consumed beyond the capacity, by a larger version of the
-- limit, leaves nothing to grant; the times in the reply are those in which it flows off as the bucket is kept.
--
-- Never: reads a caller's clock for the arithmetic, writes on a denial (but, once, for a limit that is faster than the one
-- the bucket is stored by, or because the clock stepped back), forgets what was consumed by another version of a limit,
-- leaves a key without expiry, leaves the integers below 2^53, or puts a key into an error.

-- Redis before 7 can be configured to replicate scripts by their text, which a script that reads the time must opt out of.
if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

local units = tonumber(ARGV[2])
local granted = units
local buckets = {}

for i, key in ipairs(KEYS) do
  local arg = 5 * i - 2
  local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local backlog, kept, kept_emission, kept_ticks, moved = look(key, now, emission, ticks)
  if not backlog then return redis.error_reply(FOREIGN) end
  buckets[i] = { backlog, kept, kept_emission, kept_ticks, moved }
  local room = math.max(0, capacity - tonumber(ARGV[arg + 4]) - backlog)
  granted = math.min(granted, math.floor(room / (emission * tonumber(ARGV[arg + 3]))))
end

local reply = { granted, now }
for i, key in ipairs(KEYS) do
  local arg = 5 * i - 2
  local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local charge, usable = emission * tonumber(ARGV[arg + 3]), capacity - tonumber(ARGV[arg + 4])
  local backlog, kept, kept_emission, kept_ticks, moved = unpack(buckets[i])
  if granted > 0 then
    backlog = backlog + granted * charge
    kept, kept_emission, kept_ticks, moved = backlog, emission, ticks, true
  end
  if moved then write(key, now, kept, kept_emission, kept_ticks) end
  local missing, retry_after = backlog + charge - usable, 0
  if kept_emission ~= emission or kept_ticks ~= ticks then
    missing = kept - convert(math.max(0, usable - charge), emission, kept_emission, false)
  end
  if granted < units then retry_after = math.max(0, math.ceil(missing / kept_ticks)) end
  reply[3 * i] = math.max(0, math.floor((usable - backlog) / emission))
  reply[3 * i + 1] = retry_after
  reply[3 * i + 2] = math.ceil(kept / kept_ticks)
end
return reply
