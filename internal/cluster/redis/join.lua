-- KEYS[1] the list of members; ARGV: id, after how many ms without a beat one is forgotten. All go by the store's clock.
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
return redis.call('ZADD', KEYS[1], now, ARGV[1])
