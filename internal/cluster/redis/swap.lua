-- KEYS[1] a value; ARGV: what it has to be, what takes its place (nothing: none), life in ms.
-- 0 means that it is something else. That the new value is there already means that this
-- was done before, and its answer was lost: no two values are the same.
local is = redis.call('GET', KEYS[1]) or ''
if ARGV[2] ~= '' and is == ARGV[2] then return 1 end
if is ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
