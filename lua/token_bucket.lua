-- Tokens that flow back one by one.
--
-- ARGV   emission E, capacity C, ticks per microsecond D, reserve R.
--        A tick is 1/D microseconds, a token takes E ticks to come back, an empty bucket C ticks to fill, of which R
--        are not to be used (see `TokenBucket::leased`). R < C < 2^52.
--
-- conversion.lua, which is put before this, is for limits that change. Consumption beyond the capacity, by a larger
-- version of the limit, leaves nothing to grant; the times in the reply are those in which it flows off as the bucket
-- is stored. A refund never returns ticks that flowed in since they were charged: the bucket may have been full before
-- and had no room for them. A bucket that is stored by another limit gets no refund, since less may be left of the
-- charge there. (A bucket that was stored so for a moment, and no longer is, looks like any other.)

algorithms.b = {
  open = function(key, now, arg, charge)
    local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
    local backlog, stored, stored_emission, stored_ticks, changed = read_as(key, now, emission, ticks)
    if not backlog then return nil end
    local usable = capacity - tonumber(ARGV[arg + 3])
    local state = { backlog, stored, stored_emission, stored_ticks, changed, emission, ticks, charge, usable }
    return state, math.floor(math.max(0, usable - backlog) / charge)
  end,

  close = function(key, now, state, granted, units)
    local backlog, stored, stored_emission, stored_ticks, changed, emission, ticks, charge, usable = unpack(state, 1, 9)
    if granted > 0 then
      backlog = backlog + granted * charge
      stored, stored_emission, stored_ticks, changed = backlog, emission, ticks, true
    end
    if changed then write(key, now, stored, stored_emission, stored_ticks) end
    local missing, retry_after = backlog + charge - usable, 0
    if stored_emission ~= emission or stored_ticks ~= ticks then
      missing = stored - convert(math.max(0, usable - charge), emission, stored_emission, false)
    end
    if granted < units then retry_after = math.max(0, math.ceil(missing / stored_ticks)) end
    return math.max(0, math.floor((usable - backlog) / emission)), retry_after, math.ceil(stored / stored_ticks)
  end,

  -- Tokens that flowed in since a charge was admitted pay for it as far as nothing else had use for them: paid_us tells.
  adjust = function(key, now, arg, charge, _, refund, taken_at, paid_us)
    local emission, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 2])
    local backlog, before, stored_emission, stored_ticks, changed = read_as(key, now, emission, ticks)
    if not backlog then return nil end
    local after = before
    if stored_emission ~= emission or stored_ticks ~= ticks then
      charge = convert(charge, emission, stored_emission, true)
    elseif not changed and taken_at <= now then
      after = after - math.min(after, math.max(0, refund - (now - taken_at) * ticks))
    end
    if charge > 0 then charge = math.max(0, charge - paid_us(after == 0) * stored_ticks) end
    after = math.min(after + charge, MAX_TICKS)
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
  grant = function(key, now, arg, tokens)
    local emission, capacity, ticks = tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
    local before, stored_emission, stored_ticks = read(key, now, emission, ticks)
    if not before then return nil end
    if not stored_emission then return {}, {} end
    local states = { before, stored_emission, stored_ticks }
    if tokens == 0 then return states, states end
    -- Consumption over the burst was under a larger one: the bucket is empty, and a grant shows at once.
    local after = math.min(before, math.floor(capacity / emission) * stored_emission)
    if tokens > 0 then after = math.max(0, after - tokens * stored_emission) end
    if tokens < 0 or after == 0 then
      redis.call('DEL', key)
      return states, {}
    end
    write(key, now, after, stored_emission, stored_ticks)
    return states, { after, stored_emission, stored_ticks }
  end,
}
