-- KEYS[1] the webhook of a server; ARGV: its number, its body. 0 means that a later one is there.
local n, c = unpack(redis.call('HMGET', KEYS[1], 'n', 'c'))
if n and tonumber(n) > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'n', ARGV[1], 'b', ARGV[2])
if not c or tonumber(c) < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'c', ARGV[1]) end
return 1
