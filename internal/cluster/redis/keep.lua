-- KEYS[1] the session; ARGV: owner, epoch, life in ms. 0 means that another has it.
local o, e = unpack(redis.call('HMGET', KEYS[1], 'o', 'e'))
if o ~= ARGV[1] or e ~= ARGV[2] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[3])
