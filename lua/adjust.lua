-- Corrects token buckets for what happened outside of them: charges what was admitted while Redis was away and what a request
-- cost beyond its reservation, gives back what was taken ahead or reserved and not spent.
--
-- KEYS   the buckets.
-- ARGV   [1] deadline: Redis time in microseconds after which nothing may be changed any more.
--        then six per key: emission E, capacity C, ticks per microsecond D, as for token_bucket.lua, ticks owed, ticks given
--        back, and the Redis time in microseconds at which the latter had been taken. C only bounds what is owed: 2^52
--        where all of it counts.
-- Reply  integers: 1 (-1: past the deadline), Redis time in microseconds.
--
-- See carry.lua, which is put before this, for what a bucket is and for limits that change. A debt counts in tokens like
-- all that was consumed, and leaves the bucket stored by the faster of the two limits.
--
-- Never: gives back what flowed in since it was taken, since the bucket may have been full before and had no room for it;
-- gives back to a bucket that is stored by another limit, where less may be left of it (one that was for a moment, and no
-- longer is, looks the same); makes a bucket owe more than a full one or the debt itself, or less than it did; and nothing
-- that token_bucket.lua never does.

if redis.replicate_commands then redis.replicate_commands() end

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if now > tonumber(ARGV[1]) then return { -1, now } end

for i, key in ipairs(KEYS) do
  local arg = 6 * i - 4
  local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  local owed, back, taken_at = tonumber(ARGV[arg + 3]), tonumber(ARGV[arg + 4]), tonumber(ARGV[arg + 5])
  local backlog, before, kept_emission, kept_ticks, moved = look(key, now, emission, ticks)
  if not backlog then return redis.error_reply(FOREIGN) end
  local after = before
  if kept_emission ~= emission or kept_ticks ~= ticks then
    owed, capacity = convert(owed, emission, kept_emission, true), convert(capacity, emission, kept_emission, true)
  elseif not moved and taken_at <= now then
    after = after - math.min(after, math.max(0, back - (now - taken_at) * ticks))
  end
  after = math.max(after, math.min(after + owed, math.max(capacity, owed)))
  if after == 0 then
    if before > 0 then redis.call('DEL', key) end
  elseif after ~= before then
    write(key, now, after, kept_emission, kept_ticks)
  end
end
return { 1, now }
