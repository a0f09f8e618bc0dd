-- Reads plans: fields of a hash that operators write.
--
-- KEYS   [1] the hash.
-- ARGV   the fields, a few hundred at most.
-- Reply  the value of each field, or nil.
--
-- Never: writes.

return redis.call('HMGET', KEYS[1], unpack(ARGV))
