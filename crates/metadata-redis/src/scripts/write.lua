-- For each instance 11 arguments: name; what must still hold (its version or 0, its worker's lease,
-- the floor or '' where it does not matter); application, state, version, since, load, reason;
-- the event's document. Answers 1 for each that was written, 0 where something no longer held.
local answers, leases = {}, {}
local floor = redis.call('HGET', state, 'floor')
for index = 4, #ARGV, 11 do
  local name, version, lease = ARGV[index], ARGV[index + 1], ARGV[index + 2]
  local application, condition = ARGV[index + 4], ARGV[index + 5]
  local worker = string.match(name, '@(.*)$')
  if leases[worker] == nil then
    leases[worker] = redis.call('HGET', prefix .. 'worker:' .. worker, 'lease')
  end
  local key = prefix .. 'instance:' .. name
  local current = redis.call('HGET', key, 'version') or '0'
  local free = ARGV[index + 3] == '' or ARGV[index + 3] == floor
  if current == version and leases[worker] == lease and free then
    redis.call('HSET', key, 'application', application, 'state', condition,
      'version', ARGV[index + 6], 'since', ARGV[index + 7], 'load', ARGV[index + 8],
      'reason', ARGV[index + 9])
    if version == '0' then
      redis.call('SADD', prefix .. 'instances', name)
      redis.call('SADD', prefix .. 'worker:' .. worker .. ':instances', name)
    end
    -- Only what is below its peak is looked up by its load.
    local loads = prefix .. 'application:' .. application .. ':load'
    if condition == 'active' then
      redis.call('ZADD', loads, ARGV[index + 8], name)
    else
      redis.call('ZREM', loads, name)
    end
    emit('instance_changed', name, ARGV[index + 10], '')
    answers[#answers + 1] = 1
  else
    answers[#answers + 1] = 0
  end
end
save()
return answers
