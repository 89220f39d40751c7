-- KEYS[1] the session; ARGV: owner, epoch, life in ms, record. Adds a session that is not there.
local o, e = unpack(redis.call('HMGET', KEYS[1], 'o', 'e'))
if o then return {0, o, e} end
redis.call('HSET', KEYS[1], 'o', ARGV[1], 'e', ARGV[2], 'b', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {1}
