-- Tokens that flow back one by one.
--
-- ARGV   of take.lua: emission E, capacity C, ticks per microsecond D, reserve R. Of adjust.lua: E, C, D, and 0.
--        A tick is 1/D microseconds, a token takes E ticks to come back, an empty bucket C ticks to fill, of which R are
--        not to be used (see `Shape::leased`). R < C < 2^52.
--
-- See carry.lua, which is put before this, for limits that change. What was consumed beyond the capacity, by a larger
-- version of the limit, leaves nothing to grant; the times in the reply are those in which it flows off as the bucket is
-- kept. Giving back never gives back what flowed in since it was taken, since the bucket may have been full before and had
-- no room for it; nor to a bucket that is stored by another limit, where less may be left of it (one that was for a moment,
-- and no longer is, looks the same).

algorithms.b = {
  open = function(key, now, arg, cost)
    local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
    local backlog, kept, kept_emission, kept_ticks, moved = look(key, now, emission, ticks)
    if not backlog then return nil end
    local charge, usable = emission * cost, capacity - tonumber(ARGV[arg + 3])
    local state = { backlog, kept, kept_emission, kept_ticks, moved, emission, ticks, charge, usable }
    return state, math.floor(math.max(0, usable - backlog) / charge)
  end,

  close = function(key, now, state, granted, units)
    local backlog, kept, kept_emission, kept_ticks, moved, emission, ticks, charge, usable = unpack(state, 1, 9)
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
    return math.max(0, math.floor((usable - backlog) / emission)), retry_after, math.ceil(kept / kept_ticks)
  end,

  adjust = function(key, now, arg, owed, back, taken_at)
    local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
    local backlog, before, kept_emission, kept_ticks, moved = look(key, now, emission, ticks)
    if not backlog then return nil end
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
    return true
  end,

  -- States are the ticks until the bucket is full, and E and D as it is kept; nothing of a full one. Tokens are given back in
  -- the ticks that the bucket is counted in, whatever the limit is now: the tokens consumed are the same in both, so no
  -- conversion is needed, and none that is made later is taken twice.
  give = function(key, now, arg, given)
    local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
    local before, kept_emission, kept_ticks = read(key, now, emission, ticks)
    if not before then return nil end
    if not kept_emission then return {}, {} end
    local states = { before, kept_emission, kept_ticks }
    if given == 0 then return states, states end
    -- What is over the burst was consumed under a larger one: the bucket is empty, and what is given back shows at once.
    local after = math.min(before, math.floor(capacity / emission) * kept_emission)
    if given > 0 then after = math.max(0, after - given * kept_emission) end
    if given < 0 or after == 0 then
      redis.call('DEL', key)
      return states, {}
    end
    write(key, now, after, kept_emission, kept_ticks)
    return states, { after, kept_emission, kept_ticks }
  end,
}
