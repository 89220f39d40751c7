-- KEYS[1] the session; ARGV: owner and epoch as seen, new owner, life in ms. Released sessions have the owner "".
local o, e, b = unpack(redis.call('HMGET', KEYS[1], 'o', 'e', 'b'))
if not o then return {-1} end                            -- nobody has it
if o ~= ARGV[1] or e ~= ARGV[2] then return {0, o, e} end -- somebody was faster
local epoch = string.format('%.0f', e + 1)
redis.call('HSET', KEYS[1], 'o', ARGV[3], 'e', epoch)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return {1, epoch, b}
