-- worker, record, length of the lease in ms, when the worker started
local worker, record, lease, since = ARGV[4], ARGV[5], text(now + ARGV[6]), ARGV[7]
local key = prefix .. 'worker:' .. worker
local fresh = redis.call('EXISTS', key) == 0
local known = redis.call('HMGET', key, 'since', 'leaving')
-- What is to leave is a life of the worker, not its name.
local leaving = known[1] == since and known[2] or '0'
redis.call('HSET', key, 'record', record, 'lease', lease, 'since', since, 'leaving', leaving)
redis.call('ZADD', prefix .. 'workers', lease, worker)
worker_changed(worker, record, lease, leaving)
save()
return { lease, fresh and 1 or 0, leaving == '1' and 1 or 0 }
