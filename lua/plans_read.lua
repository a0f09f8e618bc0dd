-- Reads fields of a hash that operators write.
--
-- KEYS   [1] the hash.
-- ARGV   the fields, a few hundred at most.
-- Reply  for each field its value, or nil.
--
-- Never: writes.

return redis.call('HMGET', KEYS[1], unpack(ARGV))
