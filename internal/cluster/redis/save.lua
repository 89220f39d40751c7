-- KEYS[1] the session; ARGV: owner, epoch, life in ms, record, next owner. 0 means that another has it.
local o, e = unpack(redis.call('HMGET', KEYS[1], 'o', 'e'))
if o ~= ARGV[1] or e ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'o', ARGV[5], 'b', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
